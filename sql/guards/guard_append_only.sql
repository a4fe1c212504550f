-- Row changes and TRUNCATE of an append-only table fail, whoever asks. ENABLE ALWAYS, because
-- session_replication_role = replica skips ordinary triggers.
create function oml.guard_append_only()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using
    errcode = 'OM060',
    message = format('%s on %I.%I is refused: it is append-only', tg_op, tg_table_schema, tg_table_name),
    hint = 'What happened stays. Correct it with a further event.';
end
$$;
