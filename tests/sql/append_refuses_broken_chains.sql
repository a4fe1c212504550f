-- Where a chain or the transaction cannot take an event, nothing is signed.
begin;
\ir shared/refused.sql
select plan(16);

create role clerk login in role oml_writer;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_grant('clerk', 'globex');
select oml_grant('clerk', 'initech');
select oml_register_event_type('invoice.exported');
select set_config('test.globex', :'globex', true);

-- OM040: the row that an append locks.
savepoint whole;
alter table oml.chain_head disable trigger guard_rows;
delete from oml.chain_head where tenant_id = :'globex';
alter table oml.chain_head enable always trigger guard_rows;
set session authorization clerk;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}', tenant => 'globex') $$,
  'OM040', format('the chain of tenant %s has no chain_head row', :'globex'), '%Restore it before anything is appended.',
  'without its chain_head row a chain takes no event'
);
select is(
  (oml_append('invoice.exported', '{}', tenant => 'initech')).seq, 2::bigint, 'while other chains go on'
);
reset session authorization;
rollback to whole;

alter table oml.chain_head disable trigger guard_rows;
delete from oml.chain_head where chain_no = 0;
alter table oml.chain_head enable always trigger guard_rows;
select pg_temp.refused(
  $$ select oml_create_tenant('umbrella') $$,
  'OM040', format('the chain of tenant %s has no chain_head row', (select value from oml.setting where name = 'deployment_id')),
  '%Restore it before anything is appended.',
  'without its chain_head row the provider chain takes none either, and the deployment no change'
);
rollback to whole;

-- OM041: a chain whose events are gone must not start anew.
alter table oml.journal disable trigger guard_rows;
delete from oml.journal where tenant_id = :'globex';
alter table oml.journal enable always trigger guard_rows;
set session authorization clerk;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}', tenant => 'globex') $$,
  'OM041', format('the chain of tenant %s is empty: its genesis event is gone', :'globex'), '%restore from a backup.',
  'a chain that was emptied does not start again'
);
select is(
  (oml_append('invoice.exported', '{}', tenant => 'initech')).seq, 2::bigint, 'while other chains go on'
);
reset session authorization;
rollback to whole;

-- OM051: read-only.
set session authorization clerk;
select pg_temp.refused(
  $$ do $do$ begin
       set local transaction_read_only = on;
       perform oml_append('invoice.exported', '{}', tenant => 'globex');
     end $do$ $$,
  'OM051', 'the transaction is read-only: nothing can be appended in it', 'Begin it READ WRITE; check default_transaction_read_only.',
  'a read-only transaction appends nothing'
);
reset session authorization;

-- OM017: what an envelope cannot hold. Only the deployment's own functions could ask for it.
select is(
  refusal[1] || ': ' || refusal[2], 'OM017: the event cannot be encoded: a negative integer has no place in an envelope',
  'a value outside the envelope''s range is refused'
)
from oml.chain_head h,
  oml.seal(
    (select s.value from oml.setting s where s.name = 'signer'), h.kid, uuid_send(h.tenant_id), uuid_send(h.tenant_id), -1,
    decode(repeat('00', 32), 'hex'), 'invoice.exported', 1, '{}', 'w', 'p', 'a', null, null, null, null, null, null, null,
    null, 'none', 'on'
  )
where h.tenant_id = :'globex';

select is(
  (select count(*) from pg_trigger
   where tgrelid = any (array['oml.journal', 'oml.chain_head']::regclass[]) and not tgisinternal
     and tgenabled <> case tgname when 'guard_commit' then 'D' else 'A' end),
  0::bigint, 'the guards stand again'
);

select * from finish();
rollback;
