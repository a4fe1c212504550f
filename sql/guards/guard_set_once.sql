-- An UPDATE may give a value to the columns named as the trigger's arguments, once, and change nothing else.
create function oml.guard_set_once()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if to_jsonb(new) - tg_argv[0:] is distinct from to_jsonb(old) - tg_argv[0:]
    or jsonb_strip_nulls(to_jsonb(old)) ?| tg_argv[0:]
  then
    raise exception using
      errcode = 'OM060',
      message = format('UPDATE on %I.%I is refused: %s may be set once, and nothing else changes', tg_table_schema, tg_table_name, array_to_string(tg_argv[0:], ', ')),
      hint = 'What happened stays. Correct it with a further event.';
  end if;
  return new;
end
$$;
