-- The verdict on a chain that nobody tampered with, and how much of it was looked at.
begin;
\ir shared/refused.sql
select plan(15);

create role clerk login in role oml_writer, oml_auditor;
select oml_create_tenant('globex') as globex \gset
select oml_grant('clerk', 'globex', '{append,audit}');
select oml_register_event_type('invoice.exported');
select value as deployment from oml.setting where name = 'deployment_id' \gset

set session authorization clerk;
select results_eq(
  $$ select chain, ok, events, first_bad_seq, fault, reason from oml_verify_chain('globex') $$,
  $$ values ('globex', true, 1::bigint, null::bigint, null::text, null::text) $$,
  'a chain of its genesis event alone verifies'
);
select count(r) as appended from generate_series(2, 2500) i, oml_append('invoice.exported', jsonb_build_object('i', i)) r \gset
select results_eq(
  $$ select ok, events from oml_verify_chain('globex') $$, 'values (true, 2500::bigint)', 'a long chain is verified to its end'
);
reset session authorization;
select is(
  (select head from oml_verify_chain('globex')), (select hash from oml.journal where tenant_id = :'globex' and seq = 2500),
  'the verdict names the last hash that was proved'
);
select results_eq(
  $$ select ok, events, head from oml_verify_chain('provider') $$,
  format('select true, count(*), (array_agg(hash order by seq desc))[1] from oml.journal where tenant_id = %L', :'deployment'),
  'the provider chain is verified likewise'
);

-- Pages.
select set_eq(
  format('select seq from oml.chain_rows(%L, 1000, 7)', :'globex'), 'select generate_series(1001::bigint, 1007)',
  'a verifier outside reads a chain page by page'
);
select is_empty(format('select from oml.chain_rows(%L, 2500, 10)', :'globex'), 'and finds nothing behind its end');
select results_eq(
  format('select name, chain_seq, journal_seq from oml.known_heads() where tenant_id = %L', :'globex'),
  $$ values ('globex', 2500::bigint, 2500::bigint) $$, 'outbox and journal say how far the chain had come'
);
alter table oml.journal disable trigger guard_rows;
savepoint before;
update oml.journal set envelope = decode(repeat('00', 5 * 1024 * 1024), 'hex') where tenant_id = :'globex' and seq between 2 and 9;
select results_eq(
  format('select seq from oml.chain_rows(%L, 1, 1000)', :'globex'), 'select generate_series(2::bigint, 5)',
  'a page ends with the row that takes it beyond 16 MiB of envelopes'
);
alter table oml.journal alter envelope drop not null;
update oml.journal set envelope = null where tenant_id = :'globex' and seq in (2, 3);
select results_eq(
  format('select seq from oml.chain_rows(%L, 1, 1000)', :'globex'), 'select generate_series(2::bigint, 7)',
  'an envelope that is gone counts for nothing'
);
select results_eq(
  format('select seq from oml.chain_rows(%L, 1, 2)', :'globex'), 'select generate_series(2::bigint, 3)',
  'and its row is still handed out'
);
rollback to before;
delete from oml.journal where tenant_id = :'globex' and seq = 1001;
select results_eq(
  $$ select events, first_bad_seq, fault from oml_verify_chain('globex') $$, $$ values (1000::bigint, 1001::bigint, 'missing-event') $$,
  'a fault at the start of a page is found there, and what went before is proved'
);
rollback to before;
update oml.journal set payload = '{}' where tenant_id = :'globex' and seq in (1000, 2000);
select results_eq(
  $$ select events, first_bad_seq, fault from oml_verify_chain('globex') $$, $$ values (999::bigint, 1000::bigint, 'column-mismatch') $$,
  'of two faults the first is named, at the end of a page too'
);
rollback to before;
alter table oml.journal enable always trigger guard_rows;

-- Looking changes nothing.
select pg_temp.stored() as stored \gset
select ok((select ok from oml_verify_chain('globex')), 'a chain can be verified again');
select is(pg_temp.stored(), :'stored', 'and verifying it stores nothing');
select lives_ok(
  $$ do $do$ begin
       set local transaction_read_only = on;
       perform ok from oml_verify_chain('globex');
     end $do$ $$,
  'so it can be done in a read-only transaction'
);

select * from finish();
rollback;
