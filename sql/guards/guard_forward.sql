create function oml.guard_forward()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if new.seq < old.seq then
    raise exception using
      errcode = 'OM061',
      message = format('frontier %L may not go back from %s to %s', old.name, old.seq, new.seq),
      hint = 'Rows below the frontier are taken for drained.';
  end if;
  return new;
end
$$;
