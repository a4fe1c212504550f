-- One write path: what an append returns, stores, links and queues.
begin;
select plan(38);

create role clerk login in role oml_writer;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_grant('clerk', 'globex', principal => 'Clerk of Globex');
select oml_register_event_type('invoice.exported');
select oml_register_event_type('invoice.exported', 3, pii_class => 'contact');
select oml_register_event_type('invoice.exported', 2, pii_class => 'name');
create temporary table receipts as select null::int as n, r.* from oml_append('', null) r limit 0;
grant all on receipts to clerk;

-- The receipt.
set session authorization clerk;
insert into receipts select 1, r.* from oml_append('invoice.exported', '{"n": 1}') r;
insert into receipts select 2, r.* from oml_append(
  'invoice.exported', '{"n": 2}', tenant => 'globex', idempotency_key => 'key 2', operation => 'export',
  app_version => '1.2.3', caused_by => '0190f3c8-0000-7000-8000-000000000001', invocation_id => 'call 9',
  entity_type => 'invoice', entity_id => 'INV-2', subject_id => 'person 5', schema_version => 1
) r;
insert into receipts select 3, r.* from oml_append('invoice.exported', '{"n": 3}', schema_version => 2) r;
reset session authorization;

select results_eq(
  'select n, tenant_id, seq from receipts order by n',
  format('values (1, %1$L::uuid, 2::bigint), (2, %1$L, 3), (3, %1$L, 4)', :'globex'),
  'a receipt names the tenant and the next seq of its chain; the genesis event had the first'
);
select results_eq(
  'select tenant_id, seq, event_id, hash from receipts order by n',
  format('select tenant_id, seq, event_id, hash from oml.journal where tenant_id = %L and seq > 1 order by seq', :'globex'),
  'receipts name the rows that the journal holds'
);
select is((select count(distinct event_id) from receipts), 3::bigint, 'every event has an id of its own');
select matches(
  event_id::text, '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$',
  format('the event id of seq %s is a UUIDv7', seq)
)
from receipts order by n;

-- What is stored.
select results_eq(
  format(
    $$ select operation, app_version, caused_by, invocation_id, entity_type, entity_id, subject_id, idempotency_key
       from oml.journal where tenant_id = %L and seq = 3 $$, :'globex'
  ),
  $$ values ('export', '1.2.3', '0190f3c8-0000-7000-8000-000000000001'::uuid, 'call 9', 'invoice', 'INV-2', 'person 5', 'key 2') $$,
  'the caller''s claims are stored as claimed'
);
select results_eq(
  format(
    $$ select operation, app_version, caused_by, invocation_id, entity_type, entity_id, subject_id, idempotency_key,
         request_digest, impersonation, artifact_id, artifact_version, plaintext_digest, ciphertext_digest, dek_id
       from oml.journal where tenant_id = %L and seq = 2 $$, :'globex'
  ),
  $$ values (null::text, null::text, null::uuid, null::text, null::text, null::text, null::text, null::text,
       null::bytea, null::text, null::uuid, null::bigint, null::bytea, null::bytea, null::uuid) $$,
  'what was not claimed is null'
);
select results_eq(
  format('select distinct writer, principal, "authorization" from oml.journal where tenant_id = %L and seq > 1', :'globex'),
  $$ values ('clerk', 'Clerk of Globex', 'membership:append') $$,
  'writer, principal and authorization come from the session and its membership'
);
select results_eq(
  format('select seq, schema_version, pii_class from oml.journal where tenant_id = %L and seq > 1 order by seq', :'globex'),
  $$ values (2::bigint, 3, 'contact'), (3, 1, 'none'), (4, 2, 'name') $$,
  'the newest version is meant unless one is named, and each brings its class of personal data'
);
select results_eq(
  format('select payload from oml.journal where tenant_id = %L and seq > 1 order by seq', :'globex'),
  $$ values ('{"n": 1}'::jsonb), ('{"n": 2}'), ('{"n": 3}') $$,
  'the payload is stored as it was passed'
);
select ok(
  bool_and(occurred_at between transaction_timestamp() and clock_timestamp()),
  'an event occurs when it is sealed, by the server''s clock'
)
from oml.journal where tenant_id = :'globex' and seq > 1;

-- The chain.
select is(hash, sha256(envelope), format('the hash of seq %s is the SHA-256 of its exact envelope', seq))
from oml.journal where tenant_id = :'globex' order by seq;
select is(
  prev_hash, coalesce(lag(hash) over (order by seq), decode(repeat('00', 32), 'hex')),
  format('seq %s links to the event before it', seq)
)
from oml.journal where tenant_id = :'globex' order by seq;
select is(
  (select array_agg(distinct kid) from oml.journal),
  array[(select h.kid from oml.chain_head h where h.chain_no = 0)],
  'every event names the deployment''s signing key'
);
select is(
  (select count(*) from oml.journal where position(convert_to(payload::text, 'UTF8') in envelope) = 0), 0::bigint,
  'every envelope holds its payload''s exact bytes'
);

-- The outbox.
select results_eq(
  format('select chain_seq, target from oml.outbox where tenant_id = %L order by seq', :'globex'),
  $$ values (1::bigint, 'bronze.events'), (2, 'bronze.events'), (3, 'bronze.events'), (4, 'bronze.events') $$,
  'each event is queued once for the lake, in chain order'
);
select bag_eq(
  'select tenant_id, chain_seq from oml.outbox', 'select tenant_id, seq from oml.journal',
  'the outbox holds one row for each event of the journal and no other'
);

-- Several appends in one statement, and in one transaction.
set session authorization clerk;
create temporary table batch as
select r.* from generate_series(1, 50) i, oml_append('invoice.exported', jsonb_build_object('i', i)) r;
reset session authorization;
select results_eq(
  'select seq from batch order by seq', 'select generate_series(5::bigint, 54)',
  'fifty appends in one statement get fifty consecutive seqs'
);
select results_eq(
  'select b.event_id, b.hash from batch b order by seq',
  format('select event_id, hash from oml.journal where tenant_id = %L and seq between 5 and 54 order by seq', :'globex'),
  'each of them returns its own receipt'
);
select is(
  (select count(*) from oml.journal j join oml.journal before on before.tenant_id = j.tenant_id and before.seq = j.seq - 1
   where j.tenant_id = :'globex' and j.prev_hash = before.hash), 53::bigint,
  'and each links to the one before it'
);

-- Two tenants of one login.
select oml_grant('clerk', 'initech');
set session authorization clerk;
select is(
  array(
    select (oml_append('invoice.exported', '{}', tenant => t)).seq
    from unnest(array['globex', 'initech', 'globex', 'initech']) with ordinality as u (t, n) order by n
  ),
  array[55, 2, 56, 3]::bigint[],
  'appends to two tenants in one statement number each chain by itself'
);
select is(
  nullif(current_setting('oml.tenant_id', true), ''), :'initech',
  'the setting that policies read names the tenant of the last append'
);
reset session authorization;
select oml_revoke('clerk', 'initech');

-- No second commit point.
set session authorization clerk;
savepoint before;
select is((select seq from oml_append('invoice.exported', '{"gone": true}')), 57::bigint, 'an append inside a savepoint takes the next seq');
rollback to before;
select is(
  (select seq from oml_append('invoice.exported', '{"kept": true}')), 57::bigint,
  'a rolled-back append leaves no gap: its seq is taken again'
);
do $$
begin
  perform oml_append('invoice.exported', '{"gone": true}');
  raise exception 'the application fails';
exception when raise_exception then
  null;
end
$$;
reset session authorization;
select is(
  (select count(*) from oml.journal where payload ? 'gone'), 0::bigint,
  'an append whose savepoint or exception block was undone never happened'
);
select bag_eq(
  'select tenant_id, chain_seq from oml.outbox', 'select tenant_id, seq from oml.journal',
  'nor is it queued'
);
select is(
  (select array_agg(seq order by seq) from oml.journal where tenant_id = :'globex'),
  array(select generate_series(1::bigint, 57)), 'the seqs of a chain are 1 to n without a gap'
);

-- An append stands in the caller's own statement.
create table ledger (id int, seq bigint, constraint small check (id < 10));
grant insert, select on ledger to clerk;
set session authorization clerk;
insert into ledger select 1, (oml_append('invoice.exported', '{"id": 1}')).seq;
select is((select seq from ledger), 58::bigint, 'a receipt can be stored by the statement that appends');
select throws_ok(
  $$ insert into ledger select 10, (oml_append('invoice.exported', '{"id": 2}')).seq $$, '23514', null,
  'a statement that fails after its append'
);
select is(
  (select seq from oml_append('invoice.exported', '{"id": 3}')), 59::bigint, 'takes the append with it'
);
reset session authorization;

select results_eq(
  $$ select ok, events, fault from oml_verify_chain('globex') $$, $$ values (true, 59::bigint, null::text) $$,
  'the chain verifies after all of this'
);

select * from finish();
rollback;
