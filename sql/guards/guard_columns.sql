-- An UPDATE may change the columns named as the trigger's arguments, and no other.
create function oml.guard_columns()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if to_jsonb(new) - tg_argv[0:] is distinct from to_jsonb(old) - tg_argv[0:] then
    raise exception using
      errcode = 'OM060',
      message = format('UPDATE on %I.%I is refused: only %s may change', tg_table_schema, tg_table_name, array_to_string(tg_argv[0:], ', ')),
      hint = 'What happened stays. Correct it with a further event.';
  end if;
  return new;
end
$$;
