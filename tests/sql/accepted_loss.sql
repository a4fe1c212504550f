-- What an accepted loss may say, how far it moves the outbox, and what it excuses in the lake.
begin;
\ir shared/refused.sql
set local client_min_messages = warning;
select * from no_plan();

create role clerk login in role oml_writer;
create role boss login in role oml_operator;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_grant('clerk', 'globex');
select oml_grant('boss', 'provider', '{operate}');
select oml_register_event_type('invoice.exported');
set session authorization clerk;
select oml_append('invoice.exported', '{}'), oml_append('invoice.exported', '{}'), oml_append('invoice.exported', '{}');
reset session authorization;
select max(seq) as outbox_end from oml.outbox \gset
delete from oml.gate;

-- One loss of globex, whose journal ends at 4, changed as a test wants it; null takes a key away.
create function pg_temp.loss(changed jsonb)
returns jsonb
language sql
as $$
  select jsonb_strip_nulls(jsonb_build_object('tenant_id', t.tenant_id, 'last_seq', 4, 'lost_from', 5, 'lost_to', 7, 'lake_events', 3) || changed)
  from oml.tenant t where t.name = 'globex'
$$;
create function pg_temp.accept(losses text, lake_version bigint)
returns text
language sql
as $$ select format('set session authorization boss; select oml_gate_accept_loss(''disk'', %L, %s)', losses, lake_version) $$;

savepoint closed;

-- Where the outbox goes on: the step is bounded, since no rollback takes it back.
select pg_temp.refused(
  pg_temp.accept(format('[%s]', pg_temp.loss('{}')), lake_version), 'OM169',
  format('the lake cannot stand at outbox seq %s: the outbox ends at %s, and goes on at most 1000000000 further', lake_version, :outbox_end),
  '%oml gate status%', 'a lake at ' || lake_version
)
from unnest(array[-9223372036854775808, -1, :outbox_end + 1000000001, 10000000000000, 9223372036854775806, 9223372036854775807]) lake_version;
update oml.frontier set seq = 9223372036854775807 where name = 'lake';
select pg_temp.refused(
  pg_temp.accept(format('[%s]', pg_temp.loss('{}')), :outbox_end), 'OM169',
  format('the lake cannot stand at outbox seq %s: the outbox ends at %s, and goes on at most 1000000000 further', :outbox_end, :outbox_end),
  '%oml gate status%', 'a frontier out of reach'
);
rollback to closed;
select lives_ok(pg_temp.accept(format('[%s]', pg_temp.loss('{}')), :outbox_end + 1000000000), 'the longest step');
reset session authorization;
select results_eq(
  'select min(seq) from oml.outbox where seq > ' || :outbox_end, format('values (%s::bigint)', :outbox_end + 1000000001), 'is taken before the first append'
);
select is((select last_value from oml.outbox_seq), :outbox_end + 1000000001::bigint, 'and goes no further');
rollback to closed;
select pg_temp.refused(
  pg_temp.accept(format('[%s]', pg_temp.loss('{}')), :outbox_end + 1000000002), 'OM169',
  format('the lake cannot stand at outbox seq %s: the outbox ends at %s, and goes on at most 1000000000 further', :outbox_end + 1000000002, :outbox_end),
  '%oml gate status%', 'a step on top of one that was rolled back'
);
select lives_ok(pg_temp.accept(format('[%s]', pg_temp.loss('{}')), :outbox_end + 1000000000), 'after a rollback it is taken once more');
reset session authorization;
select is((select last_value from oml.outbox_seq), :outbox_end + 1000000002::bigint, 'and not added to the first');
rollback to closed;
select setval('oml.outbox_seq', 5000000000000);
select lives_ok(pg_temp.accept(format('[%s]', pg_temp.loss('{}')), 5000000000000), 'a superuser may have moved the outbox there');
rollback to closed;

-- What a loss may say.
select pg_temp.refused(pg_temp.accept(losses, :outbox_end + 10), 'OM170', format('loss %s cannot be accepted: %s', n, reason), '%oml gate accept-loss%', losses)
from (
  select format('[%s]', loss) as losses, 1 as n, 'it is no object' as reason from unnest(array['1', '"x"', 'null', '[]', 'true']) loss
  union all
  select format('[%s]', pg_temp.loss(changed::jsonb)), 1, reason
  from (values
    ('{"tenant_id": null}', 'tenant_id is no UUID in lower case'), ('{"tenant_id": "globex"}', 'tenant_id is no UUID in lower case'),
    ('{"tenant_id": {}}', 'tenant_id is no UUID in lower case'), ('{"last_seq": "4"}', 'a number is none'), ('{"lost_to": {}}', 'a number is none'),
    ('{"last_seq": 4.5}', 'a number is not whole, below 0 or above 2^63 - 1'), ('{"lost_from": -1}', 'a number is not whole, below 0 or above 2^63 - 1'),
    ('{"lost_to": 9223372036854775808}', 'a number is not whole, below 0 or above 2^63 - 1'), ('{"lake_events": 1e1000}', 'a number is not whole, below 0 or above 2^63 - 1'),
    ('{"generation": 1e30}', 'a number is not whole, below 0 or above 2^63 - 1'), ('{"checkpoint_size": 1e30}', 'a number is not whole, below 0 or above 2^63 - 1'),
    ('{"last_seq": null}', 'last_seq is missing'), ('{"lost_to": null}', 'lost_from and lost_to go together'), ('{"lost_from": null}', 'lost_from and lost_to go together'),
    ('{"lost_from": null, "lost_to": null}', 'neither lost events nor a generation are named'),
    ('{"lost_from": 0}', 'lost_from is not between 1 and last_seq + 1'), ('{"lost_from": 6}', 'lost_from is not between 1 and last_seq + 1'),
    ('{"last_seq": 9223372036854775807, "lost_from": 0}', 'lost_from is not between 1 and last_seq + 1'),
    ('{"lost_to": 4}', 'lost_to is below lost_from, or more than 10^12 above it'), ('{"lost_to": 1000000000006}', 'lost_to is below lost_from, or more than 10^12 above it'),
    ('{"lake_events": ' || :outbox_end + 11 || '}', 'the lake cannot have so many of them'),
    ('{"lost_from": null, "lost_to": null, "lake_events": 1, "generation": 1}', 'the lake cannot have so many of them'),
    ('{"generation": 0}', 'generation 1 of the log is in force, and this is no later one within 1000'), ('{"generation": 1002}', 'generation 1 of the log is in force, and this is no later one within 1000'),
    ('{"generation": 2147483647}', 'generation 1 of the log is in force, and this is no later one within 1000'), ('{"generation": 2147483648}', 'generation 1 of the log is in force, and this is no later one within 1000'),
    ('{"tenant_id": "00000000-0000-4000-8000-000000000000", "last_seq": 0, "lost_from": 1, "tenant": "No Name"}', 'tenant is no name'),
    ('{"tenant_id": "00000000-0000-4000-8000-000000000000", "last_seq": 0, "lost_from": 1, "tenant": {"a": 1}}', 'tenant is no name')
  ) v (changed, reason)
  union all
  select format('[%s, %s]', pg_temp.loss('{}'), pg_temp.loss('{"lost_to": 8}')), 2, 'the tenant is named twice'
) v;
insert into oml.tlog (tenant_id, generation) values (:'globex', 2147483000);
select pg_temp.refused(
  pg_temp.accept(format('[%s]', pg_temp.loss('{"generation": 2147483647}')), :outbox_end + 10), 'OM170',
  'loss 1 cannot be accepted: generation 2147483000 of the log is in force, and this is no later one within 1000', '%', 'the last generation of all'
);
rollback to closed;
select is(
  (pg_temp.refusal_of(pg_temp.accept((
    select jsonb_agg(jsonb_build_object('tenant_id', gen_random_uuid(), 'last_seq', 0, 'generation', 1)) from generate_series(1, 100001)
  )::text, 0))).message,
  'loss 100001 cannot be accepted: there are more than 100000', 'and no more than 100,000'
);
select lives_ok(
  pg_temp.accept(jsonb_build_array(
    pg_temp.loss('{"tenant": "mallory", "last_seq": 4.0, "lost_to": 1000000000005, "lake_events": 13, "generation": 1001, "hashes": ["x"]}'),
    pg_temp.loss('{"tenant_id": "00000000-0000-4000-8000-000000000000", "tenant": "lost", "last_seq": 0, "lost_from": 1, "generation": 7}'),
    pg_temp.loss('{"tenant_id": "00000000-0000-4000-8000-000000000001", "last_seq": 0, "lost_from": null, "lost_to": null, "lake_events": null, "generation": 2}')
  )::text, :outbox_end + 10), 'each at its bounds'
);
reset session authorization;
select results_eq(
  $$ select payload -> 'losses' from oml.journal where type = 'journal.loss-accepted' $$,
  format($$ values (jsonb_build_array(
    jsonb_build_object('tenant_id', %L, 'tenant', 'globex', 'last_seq', 4, 'lost_from', 5, 'lost_to', 1000000000005, 'lake_events', 13, 'generation', 1001),
    '{"tenant_id": "00000000-0000-4000-8000-000000000000", "tenant": "lost", "last_seq": 0, "lost_from": 1, "lost_to": 7, "lake_events": 3, "generation": 7}'::jsonb,
    '{"tenant_id": "00000000-0000-4000-8000-000000000001", "last_seq": 0, "generation": 2}'::jsonb
  )) $$, :'globex'), 'a tenant has its own name, one that is lost the one it is given, and nothing else is journalled'
);
select results_eq('select tenant_id, generation from oml.tlog', format('values (%L::uuid, 1002)', :'globex'), 'and a tenant that is lost has no log');
rollback to closed;

-- The generation is later than the database's and than the one that was seen, whichever is later.
select lives_ok(pg_temp.accept(format('[%s]', pg_temp.loss('{"generation": 7}')), :outbox_end + 10), 'a generation was seen and none is recorded');
reset session authorization;
select is((select generation from oml.tlog), 8, 'the next one begins');
rollback to closed;
insert into oml.tlog (tenant_id, generation) values (:'globex', 5);
savepoint fifth;
select lives_ok(pg_temp.accept(format('[%s]', pg_temp.loss('{"generation": 2}')), :outbox_end + 10), 'an earlier one was seen than is recorded');
reset session authorization;
select is((select generation from oml.tlog), 6, 'the one after the recorded begins');
rollback to fifth;
select lives_ok(pg_temp.accept(format('[%s]', pg_temp.loss('{"generation": 9}')), :outbox_end + 10), 'a later one was seen than is recorded');
reset session authorization;
select is((select generation from oml.tlog), 10, 'the one after the seen begins');
rollback to closed;

-- What is excused in the lake: rows of the tenant, in the range of its chain and in the range of the outbox.
select lives_ok(pg_temp.accept(format('[%s]', pg_temp.loss('{}')), :outbox_end + 10), 'rows above the outbox''s end are excused');
reset session authorization;
create temporary table bronze as
select o.seq as outbox_seq, o.tenant_id, o.chain_seq as seq, j.hash
from oml.outbox o join oml.journal j on j.tenant_id = o.tenant_id and j.seq = o.chain_seq
where o.target = 'bronze.events' and o.seq <= :outbox_end;
create function pg_temp.lost()
returns table (outbox_seq bigint, seq bigint, conflict boolean, accepted boolean)
language sql
as $$
  select l.outbox_seq, l.seq, l.conflict, l.accepted
  from oml.lake_lost(
    (select array_agg(b.outbox_seq order by b.outbox_seq) from bronze b), (select array_agg(b.tenant_id order by b.outbox_seq) from bronze b),
    (select array_agg(b.seq order by b.outbox_seq) from bronze b), (select array_agg(b.hash order by b.outbox_seq) from bronze b)
  ) l
$$;
select is_empty('select * from pg_temp.lost()', 'rows of the journal''s events are not lost');
savepoint bronze;
update bronze set hash = sha256('another') where tenant_id = :'globex' and seq = 4;
select results_eq('select seq, conflict, accepted from pg_temp.lost()', 'values (4::bigint, true, false)', 'a row with another hash is not the journal''s');
rollback to bronze;
update bronze set seq = 3 where tenant_id = :'globex' and seq = 4;
select results_eq('select seq, conflict, accepted from pg_temp.lost()', 'values (3::bigint, true, false)', 'nor one with another chain seq');
rollback to bronze;
insert into bronze
select v.outbox_seq, v.tenant_id, v.seq, sha256('lost')
from (values
  (:outbox_end + 1, :'globex'::uuid, 5), (:outbox_end + 2, :'globex', 4), (:outbox_end + 3, :'globex', 7), (:outbox_end + 4, :'globex', 8),
  (:outbox_end + 5, :'initech', 5), (:outbox_end + 10, :'globex', 6), (:outbox_end + 1000, :'globex', 6)
) v (outbox_seq, tenant_id, seq);
select results_eq(
  format('select outbox_seq - %s, seq, conflict, accepted from pg_temp.lost()', :outbox_end),
  $$ values (1::bigint, 5::bigint, false, true), (2, 4, false, false), (3, 7, false, true), (4, 8, false, false), (5, 5, false, false), (10, 6, false, true), (1000, 6, false, false) $$,
  'of rows without an outbox row those of the accepted loss are excused, and no others'
);
rollback to closed;
update oml.frontier set seq = :outbox_end where name = 'lake';
select lives_ok(pg_temp.accept(format('[%s]', pg_temp.loss('{}')), :outbox_end + 10), 'a loss after a drain');
reset session authorization;
select results_eq(
  format($$ select l.outbox_seq - %1$s, l.accepted from oml.lake_lost(array[%1$s + 1, -1], array[%2$L::uuid, %2$L], '{5, 5}', array[sha256('a'), sha256('a')]) l $$, :outbox_end, :'globex'),
  format('values (%s::bigint, false), (1, true)', -1 - :outbox_end), 'excuses nothing below the frontier'
);

select * from finish();
rollback;
