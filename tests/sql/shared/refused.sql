-- Runs a statement that must be refused, as whoever the session is at the time.

-- Everything the tables hold, and the outbox sequence, which no rollback sets back.
create function pg_temp.stored()
returns text
language plpgsql
security definer
as $$
declare
  table_name text;
  digest text;
  stored text := '';
begin
  for table_name in
    select c.relname from pg_class c where c.relnamespace = 'oml'::regnamespace and c.relkind = 'r' order by 1
  loop
    execute format('select count(*) || '' '' || md5(coalesce(string_agg(t::text, '','' order by t::text), '''')) from oml.%I t', table_name)
    into digest;
    stored := stored || format(E'%s %s\n', table_name, digest);
  end loop;
  return stored || (select format('outbox_seq %s %s', s.last_value, s.is_called) from oml.outbox_seq s);
end
$$;

create type pg_temp.refusal as (sqlstate text, message text, detail text, hint text, context text);

create function pg_temp.refusal_of(statement text)
returns pg_temp.refusal
language plpgsql
as $$
declare
  refusal pg_temp.refusal;
begin
  execute statement;
  return refusal;
exception when others then
  get stacked diagnostics
    refusal.sqlstate = returned_sqlstate,
    refusal.message = message_text,
    refusal.detail = pg_exception_detail,
    refusal.hint = pg_exception_hint,
    refusal.context = pg_exception_context;
  -- PL/Python puts the exceptions' classes before the message.
  refusal.message := regexp_replace(refusal.message, '^(plpy\.\w+: )+', '');
  return refusal;
end
$$;

-- Three tests: SQLSTATE and exact message, a hint like the given pattern, and nothing stored.
create function pg_temp.refused(statement text, sqlstate text, message text, hint text, description text)
returns setof text
language plpgsql
as $$
declare
  before text := pg_temp.stored();
  refusal pg_temp.refusal := pg_temp.refusal_of(statement);
begin
  return next is(refusal.sqlstate || ': ' || refusal.message, sqlstate || ': ' || message, description);
  return next alike(refusal.hint, hint, description || ', and the hint says what to do');
  return next is(pg_temp.stored(), before, description || ', and nothing is stored');
end
$$;
