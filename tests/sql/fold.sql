-- Entities: current state folded from the journal with each insert, replayed and compared by the check.
begin;
\ir shared/refused.sql
select plan(87);

create role clerk login in role oml_writer;
create role colleague login in role oml_writer, oml_auditor;
create role reader login in role oml_auditor;
create role stranger login in role oml_writer, oml_auditor;
create role auditor login in role oml_auditor;
create role keeper login in role oml_auditor;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_grant('clerk', 'globex');
select oml_grant('colleague', 'globex');
select oml_grant('colleague', 'initech');
select oml_grant('reader', 'globex', '{audit}');
select oml_grant('auditor', 'provider', '{audit}');
select oml_grant('keeper', 'globex', '{submit,review,operate}');
select oml_register_event_type('invoice.opened', state_keys => '{status,total,customer}');
select oml_register_event_type('invoice.paid', state_keys => '{status}');
select oml_register_event_type('invoice.paid', 2, state_keys => '{status,paid}');
select oml_register_event_type('invoice.noted');

create temporary table told (n int, seq bigint, event_id uuid);
grant insert, select on told to public;
create function pg_temp.told(n int, r oml.receipt) returns void language sql
as 'insert into told values (n, r.seq, r.event_id)';
create function pg_temp.entity(tenant_id uuid, entity_type text, entity_id text)
returns table (last_seq bigint, last_type text, event_count bigint, state jsonb)
language sql
as $$
  select e.last_seq, e.last_type, e.event_count, e.state from oml.entity e
  where (e.tenant_id, e.entity_type, e.entity_id) = ($1, $2, $3)
$$;

-- One event.
set session authorization clerk;
select pg_temp.told(1, oml_append('invoice.noted', '{"status": "ignored"}'));
reset session authorization;
select is((select count(*) from oml.entity), 0::bigint, 'an event that names no entity folds into none');
set session authorization clerk;
select pg_temp.told(2, oml_append(
  'invoice.opened', '{"status": "open", "total": 12.50, "note": "x", "nested": {"status": "no"}}', entity_type => 'invoice', entity_id => '7'
));
reset session authorization;
select results_eq(
  format('select * from pg_temp.entity(%L, %L, %L)', :'globex', 'invoice', '7'),
  $$ values (3::bigint, 'invoice.opened', 1::bigint, '{"status": "open", "total": 12.50}'::jsonb) $$,
  'the first event makes the entity, of the state keys that its payload has at the top'
);
select ok(
  e.last_event_id = j.event_id and e.first_at = j.occurred_at and e.last_at = j.occurred_at,
  'with the event''s id and time'
)
from oml.entity e join oml.journal j on j.tenant_id = e.tenant_id and j.seq = e.last_seq;

-- The next ones.
set session authorization clerk;
select pg_temp.told(3, oml_append('invoice.noted', '{"status": "ignored", "total": 0}', entity_type => 'invoice', entity_id => '7'));
reset session authorization;
select results_eq(
  format('select * from pg_temp.entity(%L, %L, %L)', :'globex', 'invoice', '7'),
  $$ values (4::bigint, 'invoice.noted', 2::bigint, '{"status": "open", "total": 12.50}'::jsonb) $$,
  'a type without state keys counts and leaves the state'
);
set session authorization clerk;
select pg_temp.told(4, oml_append(
  'invoice.opened', '{"status": null, "customer": {"name": "Zoë"}}', entity_type => 'invoice', entity_id => '7'
));
reset session authorization;
select results_eq(
  format('select * from pg_temp.entity(%L, %L, %L)', :'globex', 'invoice', '7'),
  $$ values (5::bigint, 'invoice.opened', 3::bigint, '{"status": null, "total": 12.50, "customer": {"name": "Zoë"}}'::jsonb) $$,
  'a key that is null becomes null, one that is absent stays'
);
set session authorization clerk;
select pg_temp.told(5, oml_append(
  'invoice.paid', '{"status": "paid", "paid": 1}', entity_type => 'invoice', entity_id => '7', schema_version => 1
));
reset session authorization;
select is((pg_temp.entity(:'globex', 'invoice', '7')).state -> 'paid', null, 'the state keys are those of the event''s version');
set session authorization clerk;
select pg_temp.told(6, oml_append('invoice.paid', '{"paid": true}', entity_type => 'invoice', entity_id => '7'));
select pg_temp.told(7, oml_append('invoice.opened', '{"total": 1}', entity_type => 'order', entity_id => '7'));
select pg_temp.told(8, oml_append('invoice.opened', '{}', entity_type => 'invoice', entity_id => '8'));
reset session authorization;
set session authorization colleague;
select pg_temp.told(9, oml_append('invoice.opened', '{"total": 2}', tenant => 'initech', entity_type => 'invoice', entity_id => '7'));
reset session authorization;
select results_eq(
  $$ select tenant_id, entity_type, entity_id, last_seq, event_count, state from oml.entity
     order by tenant_id = current_setting('test.globex', true)::uuid, entity_type, entity_id $$,
  format(
    $$ values
      (%1$L::uuid, 'invoice', '7', 2::bigint, 1::bigint, '{"total": 2}'::jsonb),
      (%2$L, 'invoice', '7', 7, 5, '{"paid": true, "status": "paid", "total": 12.50, "customer": {"name": "Zoë"}}'),
      (%2$L, 'invoice', '8', 9, 1, '{}'), (%2$L, 'order', '7', 8, 1, '{"total": 1}') $$,
    :'initech', :'globex'
  ),
  'tenants, types and ids are kept apart'
)
from (select set_config('test.globex', :'globex', true) offset 0) s;
select is(
  (select first_at from oml.entity where entity_type = 'invoice' and entity_id = '7' and tenant_id = :'globex'),
  (select j.occurred_at from oml.journal j where j.tenant_id = :'globex' and j.seq = 3), 'first_at stays that of the first event'
);
select is_empty('select * from oml_fold_check()', 'the check finds nothing');

-- What is undone was never folded; a repeated request is not folded twice.
select md5(string_agg(e::text, ',' order by e::text)) as entities from oml.entity e \gset
set session authorization clerk;
savepoint before;
select oml_append('invoice.opened', '{"total": 99}', entity_type => 'invoice', entity_id => '7');
rollback to before;
select oml_append('invoice.noted', '{}', idempotency_key => 'k', entity_type => 'invoice', entity_id => '8');
select oml_append('invoice.noted', '{}', idempotency_key => 'k', entity_type => 'invoice', entity_id => '8');
reset session authorization;
select is((pg_temp.entity(:'globex', 'invoice', '8')).event_count, 2::bigint, 'a repeated request counts once');
select is((pg_temp.entity(:'globex', 'invoice', '7')).event_count, 5::bigint, 'and one rolled back not at all');
set session_replication_role = replica;
set session authorization clerk;
select oml_append('invoice.noted', '{}', entity_type => 'invoice', entity_id => '8');
reset session authorization;
reset session_replication_role;
select is((pg_temp.entity(:'globex', 'invoice', '8')).event_count, 3::bigint, 'an append under session_replication_role = replica folds too');

-- Many events in one statement, inserted against their order, with those of another chain among them.
create function pg_temp.rows(last_globex bigint, last_initech bigint)
returns setof oml.journal
language sql
as $$
  select (jsonb_populate_record(j, jsonb_build_object(
    'seq', i + case when c = 0 then last_globex else last_initech end, 'event_id', gen_random_uuid(), 'type', case when i % 11 = 0 then 'never.registered' when i % 3 = 0 then 'invoice.paid' else 'invoice.opened' end,
    'schema_version', case i % 3 when 0 then 2 else 1 end, 'occurred_at', '2030-01-01'::timestamptz - i * interval '1 s',
    'entity_type', case when i % 5 > 0 then 'batch' end, 'entity_id', case when i % 5 > 0 then (i % 4)::text end,
    'payload', case when i % 7 = 0 then '{}' else jsonb_build_object('status', i, 'total', i * 1.50, 'paid', i % 2 = 0) end,
    'idempotency_key', null, 'request_digest', null
  ))).*
  from generate_series(1, 60) i
  cross join generate_series(0, 1) c
  join oml.journal j on j.seq = 2 and j.tenant_id = case c when 0 then current_setting('test.globex')::uuid else current_setting('test.initech')::uuid end
  order by i desc, c
$$;
select set_config('test.initech', :'initech', true);
select max(seq) filter (where tenant_id = :'globex') as globex_head, max(seq) filter (where tenant_id = :'initech') as initech_head
from oml.journal \gset
select max(seq) as queued from oml.outbox \gset
insert into oml.journal select * from pg_temp.rows(:globex_head, :initech_head);
select results_eq(
  format('select array_agg(chain_seq order by seq) from oml.outbox where seq > %s and tenant_id = %L', :queued, tenant_id),
  format('select array_agg(i) from generate_series(%s::bigint, %s) i', head + 1, head + 60),
  'events of one statement are queued in chain order, whatever the order of the insert'
)
from (values (:'globex', :globex_head), (:'initech', :initech_head)) c (tenant_id, head);
select is(
  (select count(*) from oml.outbox where seq > :queued), 120::bigint, 'each once'
);
select results_eq(
  format('select * from pg_temp.entity(%L, %L, %L)', :'globex', 'batch', '1'),
  format($$ values (%s::bigint, 'invoice.paid', 12::bigint, '{"status": 57, "total": 79.50, "paid": false}'::jsonb) $$, :globex_head + 57),
  'and folded as one after another'
);
select is(
  (select first_at from oml.entity where tenant_id = :'globex' and entity_type = 'batch' and entity_id = '1'),
  '2030-01-01'::timestamptz - interval '1 s', 'first is who comes first in the chain, not by the clock'
);
select is_empty('select * from oml_fold_check()', 'as the check says');
select max(seq) filter (where tenant_id = :'globex') as globex_head, max(seq) filter (where tenant_id = :'initech') as initech_head
from oml.journal \gset
insert into oml.journal select * from pg_temp.rows(:globex_head, :initech_head);
select is_empty('select * from oml_fold_check()', 'also when the entities were there before');
select is((pg_temp.entity(:'globex', 'batch', '1')).event_count, 24::bigint, 'whose counts go on');
insert into oml.journal select * from pg_temp.rows(0, 0) where false;
select is_empty('select * from oml_fold_check()', 'a statement that inserts nothing folds nothing');

-- A table of one's own does not stand before what the triggers see.
set session authorization clerk;
create temporary table appended (like told);
create temporary table entity (like told);
select is((oml_append('invoice.opened', '{"total": 3}', entity_type => 'invoice', entity_id => '10')).seq, :globex_head + 61::bigint, 'an event');
select is((select state from oml_entity('invoice', '10')), '{"total": 3}', 'is folded in spite of a temporary table appended');
reset session authorization;
select is(
  (select count(*) from oml.outbox where tenant_id = :'globex' and chain_seq = :globex_head + 61), 1::bigint, 'and queued'
);

-- An entity's row is updated in place, without a new index entry.
select cmp_ok(
  pg_stat_get_xact_tuples_hot_updated('oml.entity'::regclass), '>=', (pg_stat_get_xact_tuples_updated('oml.entity'::regclass) * 0.9)::bigint,
  'updates of entities are HOT'
);

-- OM086: an entity has a type and an id.
set session authorization clerk;
select pg_temp.refused(
  format('select oml_append(%L, %L, %s => %L)', 'invoice.noted', '{}', claim, '7'), 'OM086',
  format('an event of invoice.noted names an entity by its %s alone', name), 'entity_type and entity_id go together%',
  format('an entity by its %s alone is refused', name)
)
from (values ('entity_type', 'type'), ('entity_id', 'id')) c (claim, name);
select lives_ok(
  $$ select oml_append('invoice.opened', '{"status": 1}', entity_type => '', entity_id => '') $$, 'the empty names are names'
);
-- The longest names there can be, of text that does not compress.
reset session authorization;
select string_agg(md5(i::text), '') as noise from generate_series(1, 64) i \gset
set session authorization clerk;
select lives_ok(
  format($$ select oml_append('invoice.opened', '{}', entity_type => %L, entity_id => %L) $$, left(:'noise', 1024), right(:'noise', 1024)),
  'names of 2048 bytes together are taken'
);
reset session authorization;

-- oml_entity: the caller's tenant, chosen as an append chooses it.
set session authorization clerk;
select results_eq(
  $$ select last_seq, last_type, event_count, state from oml_entity('invoice', '7') $$,
  $$ values (7::bigint, 'invoice.paid', 5::bigint, '{"paid": true, "status": "paid", "total": 12.50, "customer": {"name": "Zoë"}}'::jsonb) $$,
  'who may append reads an entity'
);
select is(
  (select last_event_id from oml_entity('invoice', '7')), (select event_id from told where n = 6), 'with its last event''s id'
);
select is_empty(format('select * from oml_entity(%L, %L)', kind, id), 'an entity that no event names has no row')
from (values ('invoice', '9'), ('Invoice', '7'), (null, '7'), ('invoice', null)) v (kind, id);
select pg_temp.refused(
  $$ select * from oml_entity('invoice', '7', 'initech') $$, 'OM003',
  'there is no tenant ''initech'' that login clerk may use', 'This login may use: globex.',
  'another tenant''s entities are refused'
);
set oml.tenant_id = :'initech';
select is((select last_seq from oml_entity('invoice', '7')), 7::bigint, 'whatever oml.tenant_id says');
select set_config('oml.tenant', 'initech', true), set_config('oml.transaction', mark, true)
from unnest(array[pg_current_xact_id()::text]) mark;
select is((select last_seq from oml_entity('invoice', '7')), 7::bigint, 'and oml.tenant, unless oml_use set it');
reset session authorization;
set session authorization reader;
select is((select last_seq from oml_entity('invoice', '7', 'globex')), 7::bigint, 'who may audit reads it too');
set transaction_read_only = on;
select is((select last_seq from oml_entity('invoice', '7')), 7::bigint, 'also in a read-only transaction');
reset session authorization;
rollback to before;
set session authorization colleague;
select is((select state from oml_entity('invoice', '7', 'initech')), '{"total": 2}', 'of several tenants the one that is named');
select pg_temp.refused(
  $$ select * from oml_entity('invoice', '7') $$, 'OM002', 'login colleague is bound to several tenants and named none',
  'Say which: select oml_use(…), or the argument tenant%', 'none of several is refused'
);
select oml_use('initech');
select is((select state from oml_entity('invoice', '7')), '{"total": 2}', 'unless oml_use chose one');
select is((select last_seq from oml_entity('invoice', '7', 'globex')), 7::bigint, 'and it named another');
reset session authorization;
set session authorization keeper;
select pg_temp.refused(
  $$ select * from oml_entity('invoice', '7', 'globex') $$, 'OM001', 'login keeper is bound to no tenant it may use',
  '%An operator binds it%', 'who may neither append nor audit reads nothing'
);
reset session authorization;
set session authorization stranger;
select pg_temp.refused(
  $$ select * from oml_entity('invoice', '7') $$, 'OM001', 'login stranger is bound to no tenant it may use',
  '%An operator binds it%', 'who is bound to nothing reads nothing'
);
reset session authorization;
set session authorization reader;
select pg_temp.refused(
  format('select * from oml_fold_check(%L)', tenant), 'OM004', 'login reader may not audit this tenant', '%permission audit%',
  format('the auditor of globex may not check %s', tenant)
)
from unnest(array['initech', 'no-such-tenant']) tenant;
select is_empty($$ select * from oml_fold_check('globex') $$, 'but globex');
reset session authorization;
set session authorization auditor;
select pg_temp.refused(
  $$ select * from oml_fold_check('no-such-tenant') $$, 'OM003', 'there is no tenant ''no-such-tenant''', '%', 'who audits all is told which is none'
);
select is_empty($$ select * from oml_fold_check() $$, 'and checks all');
reset session authorization;

-- Rows move on and never back.
select throws_ok(
  format('update oml.entity set %s where entity_type = ''invoice'' and entity_id = ''7'' and tenant_id = %L', change, :'globex'), 'OM066',
  format('entity invoice ''7'' may not go from event 7 back to %s', goal), format('an update of %s is refused', change)
)
from (values
  ('state = ''{}''', 7), ('last_seq = last_seq', 7), ('last_seq = 6, event_count = 9', 6), ('last_seq = 99', 99),
  ('last_seq = 99, event_count = 9, first_at = now()', 99), ('last_seq = 99, event_count = 9, entity_id = ''x''', 99)
) c (change, goal);

-- What a superuser did anyway is found.
select set_config('test.initech', :'initech', true);
create function pg_temp.found_after(tampering text)
returns setof text
language plpgsql
as $$
declare
  findings text[];
begin
  begin
    alter table oml.entity disable trigger all;
    alter table oml.journal disable trigger all;
    execute tampering;
    findings := array(
      select format('%s %s %s %s', f.chain, f.entity_type, f.entity_id, f.difference)
        || coalesce((
          select string_agg(format(' %s %s, not %s', k, coalesce(f.found ->> k, 'null'), f.expected ->> k), ';' order by k)
          from jsonb_object_keys(f.expected) k where f.difference = 'different' and f.found -> k is distinct from f.expected -> k
        ), '')
      from oml_fold_check() f
    );
    raise exception using errcode = 'ZZ000';
  exception when sqlstate 'ZZ000' then
    return query select unnest(findings);
  end;
end
$$;
select results_eq(
  format('select * from pg_temp.found_after(%L)', tampering), format('select unnest(%L::text[])', findings), format('%s is found', name)
)
from (values
  ('nothing', 'select 1', '{}'::text[]),
  ('another state', $$ update oml.entity set state = '{"status": "open"}' where entity_type = 'order' $$,
    array['globex order 7 different state {"status": "open"}, not {"total": 1}']),
  ('a number written to other precision', $$ update oml.entity set state = '{"total": 1.0}' where entity_type = 'order' $$,
    array['globex order 7 different']),
  ('another count', $$ update oml.entity set event_count = 2 where entity_type = 'order' $$,
    array['globex order 7 different event_count 2, not 1']),
  ('another last event', $$ update oml.entity set last_seq = 2, last_type = 'invoice.paid' where entity_type = 'order' $$,
    array['globex order 7 different last_seq 2, not 8; last_type invoice.paid, not invoice.opened']),
  ('a deleted row', $$ delete from oml.entity where entity_type = 'order' $$, array['globex order 7 missing']),
  ('an added row',
    $$ insert into oml.entity select tenant_id, 'order', '8', last_seq, last_event_id, last_type, 1, first_at, last_at, state
       from oml.entity where entity_type = 'order' $$,
    array['globex order 8 extra']),
  ('a renamed row', $$ update oml.entity set entity_id = '8' where entity_type = 'order' $$,
    array['globex order 7 missing', 'globex order 8 extra']),
  ('a row moved to a tenant that does not exist',
    $$ update oml.entity set tenant_id = '00000000-0000-0000-0000-000000000000' where entity_type = 'order' $$,
    array['00000000-0000-0000-0000-000000000000 order 7 extra', 'globex order 7 missing']),
  ('an event that was taken away', $$ delete from oml.journal where entity_type = 'order' $$, array['globex order 7 extra']),
  ('an event that was slipped in without its fold',
    $$ update oml.journal set entity_type = 'order', entity_id = '9' where seq = 2 and tenant_id = current_setting('test.initech')::uuid $$,
    array['initech invoice 7 extra', 'initech order 9 missing'])
) v (name, tampering, findings);
select is_empty('select * from oml_fold_check()', 'and after all of it is undone nothing is');

select * from finish();
rollback;
