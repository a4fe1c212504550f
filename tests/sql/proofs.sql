-- Who may have a checkpoint signed and an event proved, and what there is no proof of. That proofs prove
-- something is shown from outside, in Python.
begin;
\ir shared/refused.sql
select plan(47);

create role clerk login in role oml_writer;
create role stranger login in role oml_auditor, oml_daemon;
create role insider login in role oml_auditor, oml_daemon;
create role provider_auditor login in role oml_auditor, oml_daemon;
create role provider_operator login in role oml_auditor, oml_daemon;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_grant('insider', 'globex', '{audit,operate}');
select oml_grant('provider_auditor', 'provider', '{audit}');
select oml_grant('provider_operator', 'provider', '{operate}');
select event_id as ours from oml.journal where tenant_id = :'globex' \gset
select event_id as theirs from oml.journal where tenant_id = :'initech' \gset
\set nothing '01890a5d-ac96-774b-bcce-b302099a8057'
select format('select oml.tlog_sign(%L, 1, 1, sha256(''''))', :'globex') as signing \gset

-- Signing.
set session authorization clerk;
select throws_ok(:'signing', '42501', null, 'a writer cannot call for a signature');
reset session authorization;
set session authorization stranger;
select pg_temp.refused(:'signing', 'OM004', 'login stranger lacks the permission operate on the provider', '%oml_grant%', 'without a membership nothing is signed');
reset session authorization;
set session authorization insider;
select pg_temp.refused(:'signing', 'OM004', 'login insider lacks the permission operate on the provider', '%oml_grant%', 'operate on a tenant is not enough');
reset session authorization;
set session authorization provider_auditor;
select pg_temp.refused(:'signing', 'OM004', 'login provider_auditor lacks the permission operate on the provider', '%oml_grant%', 'nor is audit on the provider');
reset session authorization;
set session authorization provider_operator;
select pg_temp.refused(
  :'signing', 'OM149', 'this transaction has written something, so it may see what is not committed',
  'Sign a checkpoint in a transaction of its own.', 'nothing is signed that might be rolled back'
);
reset session authorization;

-- Proofs.
set session authorization clerk;
select throws_ok(format('select oml_prove_inclusion(%L)', :'ours'), '42501', null, 'a writer cannot call for a proof');
reset session authorization;
set session authorization stranger;
select pg_temp.refused(
  format('select oml_prove_inclusion(%L::uuid)', event), 'OM004', 'login stranger may not audit this tenant',
  'It needs the permission audit on the tenant or on the provider.', format('without a membership there is no proof of %s', coalesce(event, 'nothing'))
)
from unnest(array[:'ours', :'nothing', null]) as event;
reset session authorization;
set session authorization insider;
select pg_temp.refused(
  format('select oml_prove_inclusion(%L::uuid)', event), 'OM145', format('there is no event %s in a chain that insider may audit', event),
  'Give the event_id that oml_append returned.%', format('another''s event %s is none to a tenant''s auditor', coalesce(event, 'nothing'))
)
from unnest(array[:'theirs', :'nothing', null]) as event;
select pg_temp.refused(
  format('select oml_prove_inclusion(%L)', :'ours'), 'OM147', 'no checkpoint of this chain was published, and only a checkpoint proves anything',
  '%Is its role tlog running?%', 'without a checkpoint there is no proof'
);
reset session authorization;
alter table oml.setting disable trigger guard_rows;
delete from oml.setting where name = 'tlog_url';
alter table oml.setting enable always trigger guard_rows;
set session authorization provider_auditor;
select pg_temp.refused(
  format('select oml_prove_inclusion(%L)', :'nothing'), 'OM145', format('there is no event %s in a chain that provider_auditor may audit', :'nothing'),
  'Give the event_id that oml_append returned.%', 'there is no proof of what there is not'
);
select pg_temp.refused(
  format('select oml_prove_inclusion(%L)', :'theirs'), 'OM147', 'no checkpoint of this chain was published, and only a checkpoint proves anything',
  'Set tlog_url%', 'the provider''s auditor may ask of every tenant, and is told where nothing is published'
);
reset session authorization;
insert into oml.tlog (tenant_id, size, root, checkpoint, published_at) values (:'globex', 1, sha256(''), 'no note', now());
select pg_temp.refused(
  format('select oml_prove_inclusion(%L)', :'ours'), 'OM148', 'the journal does not lead to the checkpoint that was published: no signature lines follow the note''s text',
  'Run oml verify.%', 'a row that was changed proves nothing'
);
insert into oml.tlog (tenant_id, size, root, checkpoint, published_at) values (:'initech', 1, sha256(''), 'no note', now());
create role other login in role oml_writer;
select oml_grant('other', 'initech');
select oml_register_event_type('job.done');
set session authorization other;
select event_id as later from oml_append('job.done', '{}') \gset
reset session authorization;
select pg_temp.refused(
  format('select oml_prove_inclusion(%L)', :'later'), 'OM146', 'the event is number 2 of its chain, and the newest checkpoint covers 1',
  'omld publishes the next one within about a second.%', 'what no checkpoint covers yet is not proved'
);

select * from finish();
rollback;
