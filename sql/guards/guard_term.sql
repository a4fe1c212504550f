create function oml.guard_term()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if new.term < old.term or new.name <> old.name then
    raise exception using
      errcode = 'OM237',
      message = case when new.name <> old.name then format('lease %L may not be renamed', old.name)
        else format('lease %L may not go back from term %s to %s', old.name, old.term, new.term) end,
      hint = 'A term tells one holder from those before it.';
  end if;
  return new;
end
$$;
