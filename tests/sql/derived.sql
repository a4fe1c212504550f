-- What an event implies is written with it, once, whoever inserts it and whatever the session's settings say.
begin;
select * from no_plan();

create role clerk login in role oml_writer;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_grant('clerk', tenant) from unnest(array['globex', 'initech']) tenant;
select oml_register_event_type('order.noted', state_keys => '{total}');
-- A type with a target of a later version.
insert into oml.event_type (type, targets, state_keys) values ('order.placed', '{bronze.events,gold.orders}', '{status,total}');

create function pg_temp.queued(tenant_id uuid, chain_seq bigint)
returns text[]
language sql
as $$ select array_agg(o.target order by o.seq) from oml.outbox o where (o.tenant_id, o.chain_seq) = ($1, $2) $$;
create function pg_temp.folded(tenant_id uuid, entity_id text)
returns text
language sql
as $$
  select format('%s of %s at %s: %s', e.last_type, e.event_count, e.last_seq, e.state) from oml.entity e
  where (e.tenant_id, e.entity_type, e.entity_id) = ($1, 'order', $2)
$$;

-- By oml_append and oml_append_batch.
set session authorization clerk;
select oml_append('order.placed', '{"status": "new", "total": 1, "note": 2}', tenant => 'globex', entity_type => 'order', entity_id => '1');
select oml_append('order.noted', '{"status": "no", "total": 3}', tenant => 'globex', entity_type => 'order', entity_id => '1');
select oml_append('order.placed', '{}', tenant => 'globex');
select from oml_append_batch($$ [
  {"tenant": "globex", "type": "order.placed", "payload": {"status": "b"}, "entity_type": "order", "entity_id": "1"},
  {"tenant": "initech", "type": "order.noted", "payload": {"total": 5}, "entity_type": "order", "entity_id": "1"},
  {"tenant": "globex", "type": "order.noted", "payload": {"total": 6}, "entity_type": "order", "entity_id": "1"}
] $$);
reset session authorization;
select is(pg_temp.queued(:'globex', seq), targets::text[], format('event %s has one outbox row a target, in their order', seq))
from (values
  (2::bigint, '{bronze.events,gold.orders}'), (3, '{bronze.events}'), (4, '{bronze.events,gold.orders}'),
  (5, '{bronze.events,gold.orders}'), (6, '{bronze.events}')
) e (seq, targets);
select is(pg_temp.queued(:'initech', 2), '{bronze.events}', 'also another tenant''s of the batch');
select is(
  (select array_agg(chain_seq order by seq) from oml.outbox where tenant_id = :'globex'), '{1,2,2,3,4,4,5,5,6}', 'in chain order'
);
select is(
  pg_temp.folded(:'globex', '1'), 'order.noted of 4 at 6: {"total": 6, "status": "b"}', 'each event that names an entity counts once in it'
);
select is(pg_temp.folded(:'initech', '1'), 'order.noted of 1 at 2: {"total": 5}', 'and in its own tenant''s alone');
select is((select count(*) from oml.entity), 2::bigint, 'and in no other');

-- Whatever the session has set: each of OML's names, to what could be meant by it.
create function pg_temp.append_under(name text, value text)
returns text
language plpgsql
as $$
declare
  receipt oml.receipt;
begin
  perform set_config(name, value, false);
  receipt := oml_append('order.placed', '{"status": "s"}', tenant => 'globex', entity_type => 'order', entity_id => 'set');
  perform set_config(name, value, false);
  perform oml_append_batch(
    '[{"tenant": "globex", "type": "order.noted", "payload": {"total": 1}, "entity_type": "order", "entity_id": "set"}]'
  );
  perform set_config(name, '', false);
  return receipt.seq;
end
$$;
select count(*) as before from oml.journal where tenant_id = :'globex' \gset
select set_config('test.initech', :'initech', true);
set session authorization clerk;
create temporary table appended as
select s.name, s.value, pg_temp.append_under(s.name, s.value)::bigint as seq
from (values
  ('oml.core_loaded', 'on'), ('oml.core_loaded', 'off'), ('oml.core_loaded', ''), ('oml.core_loaded', 'x'),
  ('oml.transaction', ''), ('oml.transaction', 'x'), ('oml.transaction', pg_current_xact_id()::text),
  ('oml.tenant_id', ''), ('oml.tenant_id', current_setting('test.initech')), ('oml.tenant_id', '00000000-0000-0000-0000-000000000000'),
  ('oml.derives', 'on'), ('oml.derives', 'off'), ('oml.derived', 'on'),
  ('oml.tenant', 'initech'), ('oml.principal', 'postgres'), ('oml.impersonation', '00000000-0000-0000-0000-000000000000'),
  ('oml.commit_floor', 'off')
) s (name, value);
reset session authorization;
select is(pg_temp.queued(:'globex', seq), '{bronze.events,gold.orders}', format('under %s = %L an event is queued once a target', name, value))
from appended;
select is(pg_temp.queued(:'globex', seq + 1), '{bronze.events}', format('and so is a batch under %s = %L', name, value)) from appended;
select is(
  (select count(*) from oml.journal where tenant_id = :'globex') - :before, (select 2 * count(*) from appended),
  'each is stored, in the tenant it named'
);
select is(
  (select event_count from oml.entity where tenant_id = :'globex' and entity_id = 'set'), (select 2 * count(*) from appended),
  'and counts once'
);
select is((select count(*) from oml.journal where tenant_id = :'initech'), 2::bigint, 'and none in another');
select is_empty('select * from oml_fold_check()', 'the check finds nothing');

-- By a superuser: several rows in any order, of several tenants in one statement, under such settings too.
select set_config(name, 'on', true) from unnest(array['oml.core_loaded', 'oml.derives', 'oml.transaction']) name;
select set_config('oml.tenant_id', :'initech', true);
select max(seq) filter (where tenant_id = :'globex') as g, max(seq) filter (where tenant_id = :'initech') as i from oml.journal \gset
insert into oml.journal
select (jsonb_populate_record(j, jsonb_build_object(
  'seq', n + case j.tenant_id when :'globex' then :g else :i end, 'event_id', gen_random_uuid(), 'entity_id', 'other',
  'entity_type', 'order', 'type', case n when 3 then 'never.registered' else 'order.placed' end,
  'payload', jsonb_build_object('total', n, 'status', case when n = 2 then 'two' end)
))).*
from unnest(array[2, 4, 1, 3]) with ordinality o (n, nth)
cross join oml.journal j
where j.seq = 2 and j.tenant_id in (:'globex', :'initech')
order by nth, j.tenant_id = :'initech';
select is(
  pg_temp.queued(t.tenant_id, t.last + n), case n when 3 then '{bronze.events}' else '{bronze.events,gold.orders}' end::text[],
  format('event %s of %s is queued once a target', n, t.name)
)
from (values ('globex', :'globex'::uuid, :g), ('initech', :'initech', :i)) t (name, tenant_id, last)
cross join generate_series(1, 4) n;
select is(
  (select array_agg(o.chain_seq order by o.seq) from oml.outbox o where o.tenant_id = t.tenant_id and o.chain_seq > t.last),
  array(select t.last + n from unnest(array[1, 1, 2, 2, 3, 4, 4]) n), 'in chain order'
)
from (values (:'globex'::uuid, :g::bigint), (:'initech', :i)) t (tenant_id, last);
select is(
  pg_temp.folded(t.tenant_id, 'other'), format('order.placed of 4 at %s: {"total": 4, "status": null}', t.last + 4), 'and folded in chain order'
)
from (values (:'globex'::uuid, :g::bigint), (:'initech', :i)) t (tenant_id, last);
select is_empty('select * from oml_fold_check()', 'as the check says');

select * from finish();
rollback;
