-- Brings a database to the shape this version expects, from nothing or from what a DROP EXTENSION
-- left. Idempotent: the tables are made only where absent, the rest is made anew.
create function oml.attach()
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
declare
  table_name text;
begin
  -- Every function of ours looks at membership first: whoever holds another lock holds this one too.
  if to_regclass('oml.membership') is not null then
    lock table oml.membership in access exclusive mode;
  end if;
  perform oml.create_tables();
  alter table oml.outbox alter column seq set default oml.draw_outbox_seq();
  for table_name in
    select c.relname from pg_class c where c.relnamespace = 'oml'::regnamespace and c.relkind in ('r', 'p')
  loop
    execute format('alter table oml.%I enable row level security, force row level security', table_name);
  end loop;
  perform oml.attach_grants();
  perform oml.attach_policies();
  perform oml.attach_guards();
  insert into oml.lease (name) values ('lake') on conflict do nothing;
  insert into oml.frontier (name) values ('tlog'), ('bodies') on conflict do nothing;
end
$$;
