-- Rows of which only the columns named as the trigger's arguments may change, each once, from null to
-- a value.
create function oml.guard_set_once()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  set_now jsonb;
  others record;
begin
  if tg_op = 'UPDATE' then
    select jsonb_object_agg(c, null::text) into set_now
    from unnest(tg_argv) c
    where to_jsonb(old) ->> c is null and to_jsonb(new) ->> c is not null;
    if set_now is not null then
      others := jsonb_populate_record(new, set_now);
      if others *= old then
        return new;
      end if;
    end if;
  end if;
  raise exception using
    errcode = 'OM060',
    message = format('%s on %I.%I is refused: it is append-only', tg_op, tg_table_schema, tg_table_name),
    hint = 'What happened stays. Correct it with a further event.';
end
$$;
