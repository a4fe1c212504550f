-- What the lake writer asks the database: where a batch may end, what is in it, and how far the lake has come.
begin;
\ir shared/refused.sql
select plan(53);

create role clerk login in role oml_writer;
create role drainer login in role oml_daemon;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_grant('clerk', 'globex');
select oml_grant('clerk', 'initech');
select oml_grant('drainer', 'provider', '{operate}');
select oml_register_event_type('invoice.exported', pii_class => 'contact');
select max(seq) as start from oml.outbox \gset
set session authorization clerk;
select oml_append(
  'invoice.exported', jsonb_build_object('text', repeat('x', 100 * i)), tenant => case i % 2 when 0 then 'globex' else 'initech' end,
  operation => 'export', app_version => '1.0', caused_by => '0190f3c8-0000-7000-8000-000000000001', invocation_id => 'call',
  entity_type => 'invoice', entity_id => i::text, subject_id => 'person'
)
from generate_series(1, 6) i;
reset session authorization;
set session authorization drainer;

-- The cut.
select is(oml.lake_cut_limit(), :'start'::bigint + 6, 'the cut can reach the highest outbox seq that is visible');
select results_eq(
  'select xid, pid, gid from oml.lake_cut_holders()',
  'select pg_current_xact_id()::text::bigint, pg_backend_pid(), null::text',
  'a transaction that has drawn from the outbox holds it back, under its xid and pid'
);
select results_eq(
  $$ select xid from oml.lake_cut_holders(array[pg_current_xact_id()::text::bigint, 4, 5]) $$,
  'select pg_current_xact_id()::text::bigint', 'of given xids those are named that still run'
);
select is_empty('select from oml.lake_cut_holders(array[4, 5]::bigint[])', 'what has ended holds nothing back');
select is_empty('select from oml.lake_cut_holders(array[]::bigint[])', 'nor does nobody');

-- The fence.
select lives_ok(format('select oml.lake_fence(%s)', :'start'::bigint + 6), 'a fence is written');
select is((select fenced_seq from oml.lake_state()), :'start'::bigint + 6, 'and names the seq it covers');
select lives_ok('select oml.lake_fence(1)', 'a later fence at an older seq');
select is((select fenced_seq from oml.lake_state()), :'start'::bigint + 6, 'takes nothing back');
select oml.lake_fence(9000000000000000000);
select is((select fenced_seq from oml.lake_state()), :'start'::bigint + 6, 'nor does one far ahead cover what is not there yet');

-- Batches.
select is(
  oml.lake_batch_end(:'start', upto, max_rows, 1000000), :'start'::bigint + expected,
  format('a batch of at most %s rows up to %s ends after %s', max_rows, offset_to, expected)
)
from (values (6, 1000, 6), (6, 4, 4), (6, 1, 1), (3, 1000, 3), (3, 3, 3), (99, 1000, 6)) b (offset_to, max_rows, expected),
  lateral (select :'start'::bigint + offset_to as upto) u;
select is(oml.lake_batch_end(:'start'::bigint + 6, :'start'::bigint + 6, 1000, 1000000), null, 'where nothing is left there is no batch');
select is(
  oml.lake_batch_end(:'start', :'start'::bigint + 6, 1000, 1), :'start'::bigint + 1, 'a batch takes one row, however large'
);
reset session authorization;
select sum(octet_length(envelope)) as three from oml.outbox o join oml.journal j on j.tenant_id = o.tenant_id and j.seq = o.chain_seq
where o.seq between :'start'::bigint + 1 and :'start'::bigint + 3 \gset
set session authorization drainer;
select is(
  array[oml.lake_batch_end(:'start', :'start'::bigint + 6, 1000, :'three'), oml.lake_batch_end(:'start', :'start'::bigint + 6, 1000, :'three' + 1)],
  array[:'start'::bigint + 3, :'start'::bigint + 4], 'a batch is full when its rows before the last have reached the bytes'
);

-- Rows.
reset session authorization;
create temporary table expected as
select
  o.seq as outbox_seq, j.tenant_id::text, j.tenant_id::text as scope_id, j.seq, j.event_id::text, j.type, j.schema_version, j.occurred_at,
  j.principal, j.writer, j."authorization", j.impersonation, j.operation, j.app_version, j.caused_by::text, j.invocation_id, j.entity_type,
  j.entity_id, j.subject_id, j.pii_class, j.synchronous_commit, j.artifact_id::text, j.artifact_version, j.plaintext_digest, j.ciphertext_digest, j.dek_id::text,
  j.payload::text, j.prev_hash, j.hash, j.kid, octet_length(j.envelope)::bigint as bytes
from oml.outbox o join oml.journal j on j.tenant_id = o.tenant_id and j.seq = o.chain_seq;
grant select on expected to drainer;
set session authorization drainer;
select results_eq(
  format('select * from oml.lake_rows(%L, %s, %s)', 'bronze.events', :'start', :'start'::bigint + 6),
  format('select * from expected where outbox_seq > %s order by outbox_seq', :'start'),
  'the rows of a batch are the journal''s events in outbox order'
);
select results_eq(
  format('select outbox_seq from oml.lake_rows(%L, %s, %s)', 'bronze.events', :'start'::bigint + 2, :'start'::bigint + 4),
  format('values (%s::bigint), (%s)', :'start'::bigint + 3, :'start'::bigint + 4),
  'a batch begins behind its first bound and ends with its last'
);
select is_empty(format('select * from oml.lake_rows(%L, 0, %s)', 'silver.claims', :'start'::bigint + 6), 'each target has its own rows');
select set_eq(
  format('select seq from oml.lake_rows(%L, %s, %s) where tenant_id = %L', 'bronze.events', :'start', :'start'::bigint + 6, :'globex'),
  'values (2::bigint), (3), (4)', 'a tenant''s events come in chain order'
);
select results_eq(
  format('select target, event_id, hash from oml.lake_outbox_row(%s)', :'start'::bigint + 5),
  format('select %L, event_id, hash from expected where outbox_seq = %s', 'bronze.events', :'start'::bigint + 5),
  'the event under one outbox seq can be compared with a lake that stands there'
);
select is_empty(format('select * from oml.lake_outbox_row(%s)', :'start'::bigint + 7), 'a seq that was never drawn has none');

-- A batch with its rows.
select results_eq(
  format('select outbox_seq, target, tenant_id, scope_id, seq, event_id, payload, hash, bytes from oml.lake_batch(%s, %s, 1000, 1000000)', :'start', :'start'::bigint + 6),
  format(
    'select outbox_seq, %L::text, tenant_id, scope_id, seq, event_id, payload, hash, bytes from expected where outbox_seq > %s order by outbox_seq',
    'bronze.events', :'start'
  ),
  'a batch comes with its rows and their target, in outbox order'
);
select results_eq(
  format(
    'select to_jsonb(b) - %L - %L from oml.lake_batch(%s, %s, 1000, 1000000) b', 'target', 'size', :'start', :'start'::bigint + 6
  ),
  format('select to_jsonb(r) from oml.lake_rows(%L, %s, %s) r', 'bronze.events', :'start', :'start'::bigint + 6),
  'with every column that the rows of a range have'
);
select is_empty(
  format(
    $$ select from (values (6, 1000, 1000000), (6, 4, 1000000), (3, 3, 1000000), (99, 1000, 1000000), (6, 1000, 1), (6, 1000, %2$s), (6, 1000, %2$s + 1)) v (upto, max_rows, max_bytes)
       where oml.lake_batch_end(%1$s, %1$s + upto, max_rows, max_bytes)
         is distinct from (select max(outbox_seq) from oml.lake_batch(%1$s, %1$s + upto, max_rows, max_bytes)) $$,
    :'start', :'three'
  ),
  'it ends where a batch of these limits ends'
);
select is_empty(format('select from oml.lake_batch(%1$s, %1$s, 1000, 1000000)', :'start'::bigint + 6), 'and where nothing is left it is empty');

-- The frontier.
select lives_ok(format('select oml.lake_advance(%s)', :'start'::bigint + 4), 'the frontier advances');
select lives_ok(format('select oml.lake_advance(%s)', :'start'::bigint + 2), 'a writer that comes late');
select results_eq(
  'select frontier, outbox_max from oml.lake_state()', format('values (%s::bigint, %s::bigint)', :'start'::bigint + 4, :'start'::bigint + 6),
  'does not move it back'
);
select pg_temp.refused(
  format('select oml.lake_advance(%s)', :'start'::bigint + 7), 'OM064',
  format('the frontier may not go to %s, past the end of the outbox', :'start'::bigint + 7), 'Rows that come later%',
  'a frontier past the outbox'
);
reset session authorization;
select results_eq(
  'select deployment_id, lake_url, fence_synchronous_commit from oml.lake_state()',
  $$ select (select value from oml.setting where name = 'deployment_id'), (select value from oml.setting where name = 'lake_url'), 'on' $$,
  'the state names the deployment and its lake, and a fence is durable unless set otherwise'
);
select oml_configure('fence_synchronous_commit', 'remote_apply');
select is((select fence_synchronous_commit from oml.lake_state()), 'remote_apply', 'the deployment''s level is the fence''s');

-- Tables.
set session authorization drainer;
select lives_ok($$ select oml.lake_record_table('silver.claims', 1, 'silver/claims') $$, 'a lake table is recorded');
select lives_ok($$ select oml.lake_record_table('silver.claims', 2, 'elsewhere') $$, 'a second record of it');
select results_eq(
  $$ select name, generation, location from oml.lake_tables() where name = 'silver.claims' $$,
  $$ values ('silver.claims', 1, 'silver/claims') $$, 'does not move it'
);

-- What is missing.
select is_empty('select * from oml.lake_unqueued()', 'every event is queued');
reset session authorization;
alter table oml.outbox disable trigger guard_rows;
alter table oml.journal disable trigger guard_rows;
delete from oml.outbox where tenant_id = :'globex' and chain_seq = 3;
delete from oml.journal where tenant_id = :'initech' and seq = 2;
set session authorization drainer;
select results_eq(
  'select * from oml.lake_unqueued()', format('values (%L, 3::bigint)', :'globex'), 'an event without its outbox row is named'
);
select results_eq(
  format('select outbox_seq, event_id, hash from oml.lake_rows(%L, %s, %s)', 'bronze.events', :'start', :'start'::bigint + 1),
  format('values (%s::bigint, null::text, null::bytea)', :'start'::bigint + 1), 'an outbox row without its event comes without one'
);
select results_eq(
  format('select outbox_seq, event_id, hash from oml.lake_batch(%s, %s, 1000, 1000000)', :'start', :'start'::bigint + 1),
  format('values (%s::bigint, null::text, null::bytea)', :'start'::bigint + 1), 'an outbox row without its event comes without one'
);
reset session authorization;

-- OM062: numbers that a session keeps in stock would appear below the cut.
select pg_temp.refused(
  format('alter sequence oml.outbox_seq %s; select oml.lake_cut_limit()', change), 'OM062',
  'sequence oml.outbox_seq does not have CACHE 1, INCREMENT 1, NO CYCLE', '%alter sequence oml.outbox_seq cache 1 increment 1 no cycle.',
  format('with %s the lake writer is refused its cut', change)
)
from unnest(array['cache 2', 'increment 2', 'cycle']) as change;

select * from finish();
rollback;
