-- The gate's copies of settings: what an append reads is what oml.setting says, in each transaction.
begin;
\ir shared/refused.sql
select * from no_plan();

create role clerk login in role oml_writer;
select oml_create_tenant('globex') as globex \gset
select oml_grant('clerk', 'globex');
select oml_register_event_type('invoice.exported');
select s.value as signer from oml.setting s where s.name = 'signer' \gset
create function pg_temp.copies()
returns table (name text, value text)
language sql
as $$
  select c.* from oml.gate g,
    lateral (values ('deployment_id', g.deployment_id::text), ('profile', g.profile), ('signer', g.signer)) c
  where c.column2 is not null
  order by 1
$$;
create function pg_temp.copied(what text)
returns text
language sql
as $$
  select results_eq(
    'select * from pg_temp.copies()',
    $q$ select s.name, s.value from oml.setting s where s.name in ('deployment_id', 'profile', 'signer') order by 1 $q$, what
  )
$$;
select is((select count(*) from pg_temp.copies()), 3::bigint, 'after the genesis the gate has three copies');
select pg_temp.copied('of what the settings are');

-- By the verb. The same key under another name is another value.
savepoint before;
select regexp_replace(:'signer', '/([^/]+)$', '/./\1') as other \gset
select lives_ok(format('select oml_configure(%L, %L)', 'signer', :'other'), 'a signer is configured');
select is((select g.signer from oml.gate g), :'other', 'and copied in the same transaction');
select pg_temp.copied('with all others');
set session authorization clerk;
select is((oml_append('invoice.exported', '{}')).seq, 2::bigint, 'and it signs');
reset session authorization;
rollback to before;
select is((select g.signer from oml.gate g), :'signer', 'a change that was rolled back changes nothing');
select pg_temp.copied('of the copies');

-- Past the verb, by who may: each statement, and each role that replication has.
savepoint before;
update oml.setting set value = 'file:/nowhere/signing.key' where name = 'signer';
select pg_temp.copied('a superuser''s update is copied');
set session authorization clerk;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}') $$, 'OM030', 'signing key /nowhere/signing.key does not exist', '%',
  'the next append asks the new signer'
);
select pg_temp.refused(
  $$ select oml_append_batch('[{"type": "invoice.exported", "payload": {}}]') $$, 'OM030',
  'signing key /nowhere/signing.key does not exist', '%', 'and the next batch'
);
reset session authorization;
update oml.setting set value = value || 'x' where name in ('signer', 'profile');
select pg_temp.copied('also of several at once');
set session_replication_role = replica;
update oml.setting set value = :'signer' where name = 'signer';
reset session_replication_role;
select pg_temp.copied('also under session_replication_role = replica');
alter table oml.setting disable trigger guard_rows;
delete from oml.setting where name = 'profile';
select pg_temp.copied('a row that is removed leaves no copy');
select pg_temp.refused(
  format($$ select oml.append_own_event(%L, 'invoice.exported', '{}', 'p', 'a') $$, :'globex'), 'OM042',
  'the deployment''s settings lack its signer, id or profile', '%', 'without which nothing is appended'
);
insert into oml.setting (name, value) values ('profile', 'local');
select pg_temp.copied('one that is added is copied');
rollback to before;
select pg_temp.copied('and none of it is left when it is rolled back');

-- What was changed without the trigger is copied when the guards are brought back.
alter table oml.setting disable trigger copy_settings;
update oml.setting set value = :'other' where name = 'signer';
select is((select g.signer from oml.gate g), :'signer', 'without its trigger a change is not copied');
select oml_attach();
select pg_temp.copied('until oml_attach');
update oml.setting set value = :'signer' where name = 'signer';
select pg_temp.copied('from when on changes are copied again');

-- An opening copies what the settings are then.
delete from oml.gate;
update oml.setting set value = :'other' where name = 'signer';
select is_empty('select from oml.gate', 'where there is no gate a change makes none');
select oml.open_gate('{}');
select pg_temp.copied('an opening copies the settings');
update oml.gate set signer = 'file:/stale', profile = 'stale', deployment_id = gen_random_uuid();
select oml.open_gate('{}');
select pg_temp.copied('also over a row from before');

select * from finish();
rollback;
