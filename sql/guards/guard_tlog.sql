-- A log only grows. The next generation begins anew.
create function oml.guard_tlog()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if new.tenant_id <> old.tenant_id or new.generation < old.generation
    or (new.generation = old.generation and (new.size < old.size or (new.size = old.size and new.root is distinct from old.root)))
  then
    raise exception using
      errcode = 'OM150',
      message = format(
        'the log of tenant %s may not go from %s events in generation %s to %s in generation %s, or to another root',
        old.tenant_id, old.size, old.generation, new.size, new.generation
      ),
      hint = 'What was published cannot be taken back. Run oml verify, and compare the tiles with the journal.';
  end if;
  return new;
end
$$;
