-- One tenant never reaches another, neither as a login nor as one of the owners. What a login may try in
-- SQL of its own is in tests/py/integration/test_attack_table.py and test_attack_tenants.py.
begin;
select * from no_plan();

create role clerk login in role oml_writer, oml_reviewer, oml_operator, oml_auditor, oml_daemon;
create role rival login in role oml_writer;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_grant('clerk', 'globex', '{append,submit,review,operate,audit}');
select oml_grant('rival', 'initech');
select oml_register_event_type('invoice.exported');
set session authorization rival;
select oml_append('invoice.exported', '{"secret": "of initech"}', idempotency_key => 'order 1');
reset session authorization;
set session authorization clerk;
select oml_append('invoice.exported', '{}');
select is(
  (oml_append('invoice.exported', '{}', idempotency_key => 'order 1')).seq, 3::bigint,
  'another tenant''s idempotency key says nothing'
);
reset session authorization;

-- The owners themselves. oml_kernel acts in one tenant at a time.
set role oml_kernel;
select is((select count(*) from oml.journal) + (select count(*) from oml.chain_head), 0::bigint, 'with a stray tenant set oml_kernel sees nothing')
from (select set_config('oml.tenant_id', gen_random_uuid()::text, false) offset 0) s;
set oml.tenant_id = '';
select is((select count(*) from oml.journal) + (select count(*) from oml.chain_head), 0::bigint, 'with no tenant set it sees nothing');
set oml.tenant_id = :'globex';
select results_eq(
  'select distinct tenant_id from oml.journal union all select tenant_id from oml.chain_head',
  format('values (%1$L::uuid), (%1$L)', :'globex'), 'with a tenant set it sees that tenant''s rows alone'
);
select is((select count(*) from oml.membership), 0::bigint, 'and the memberships of the login it acts for alone');
select throws_ok(
  format(
    $$ insert into oml.journal (tenant_id, seq, event_id, occurred_at, type, schema_version, prev_hash, hash, kid, writer, principal,
         "authorization", pii_class, envelope)
       values (%L, 99, gen_random_uuid(), now(), 'a.b', 1, '', '', '', '', '', '', '', '') $$, :'initech'
  ),
  '42501', 'new row violates row-level security policy for table "journal"', 'it cannot write an event of another tenant'
);
select throws_ok(
  format('insert into oml.outbox (tenant_id, chain_seq, target) values (%L, 1, %L)', :'initech', 'bronze.events'),
  '42501', 'new row violates row-level security policy for table "outbox"', 'nor queue one'
);
select throws_ok(
  format($$ insert into oml.entity values (%L, 'a', 'b', 1, gen_random_uuid(), 'a.b', 1, now(), now(), '{}') $$, :'initech'),
  '42501', 'new row violates row-level security policy for table "entity"', 'nor fold one'
);
select is_empty(
  format('select from oml.chain_head where tenant_id = %L for update', :'initech'), 'nor lock another''s chain'
);
select throws_ok(statement, '42501', null, format('oml_kernel may not %s', name))
from (values
  ('update the journal', 'update oml.journal set payload = null'), ('delete from it', 'delete from oml.journal'),
  ('truncate it', 'truncate oml.journal'), ('alter it', 'alter table oml.journal disable row level security'),
  ('delete one', 'delete from oml.entity'),
  ('drop its guards', 'drop trigger guard_rows on oml.journal'), ('read the outbox', 'select * from oml.outbox'),
  ('read the tenants', 'select * from oml.tenant'), ('bind a login', 'insert into oml.membership default values'),
  ('change a setting', 'update oml.setting set value = ''x'''), ('register a type', 'insert into oml.event_type (type) values (''a.b'')'),
  ('move the frontier', 'update oml.frontier set seq = 9'), ('make a table', 'create table oml.mine ()')
) v (name, statement);
select throws_ok(
  'update oml.chain_head set chain_no = 7', 'OM060', null, 'oml_kernel may lock its chain_head row but not change it'
);
select throws_ok('update oml.chain_head set kid = kid', '42501', null, 'nor the key in force');
reset role;

set role oml_fleet;
select cmp_ok((select count(distinct tenant_id) from oml.journal), '>=', 3::bigint, 'oml_fleet sees every tenant');
select throws_ok(statement, '42501', null, format('oml_fleet may not %s', name))
from (values
  ('write an event', 'insert into oml.journal default values'), ('update the journal', 'update oml.journal set payload = null'),
  ('delete from it', 'delete from oml.journal'), ('truncate it', 'truncate oml.journal'),
  ('alter it', 'alter table oml.journal disable trigger all'), ('delete from the outbox', 'delete from oml.outbox'),
  ('queue', 'insert into oml.outbox (tenant_id, chain_seq, target) values (gen_random_uuid(), 1, ''x'')'),
  ('change an entity', 'update oml.entity set state = ''{}'''), ('register a retired type anew', 'update oml.event_type set max_bytes = 9'),
  ('rename a tenant', 'update oml.tenant set name = ''x'''), ('change a setting', 'update oml.setting set value = ''x'''),
  ('make a table', 'create table oml.mine ()')
) v (name, statement);
reset role;

set role oml_owner;
select is(
  (select count(*) from oml.journal) + (select count(*) from oml.outbox) + (select count(*) from oml.membership)
    + (select count(*) from oml.chain_head), 0::bigint, 'even the tables'' owner sees no row of them'
);
select throws_ok(
  format(
    $$ insert into oml.journal (tenant_id, seq, event_id, occurred_at, type, schema_version, prev_hash, hash, kid, writer, principal,
         "authorization", pii_class, envelope)
       values (%L, 99, gen_random_uuid(), now(), 'a.b', 1, '', '', '', '', '', '', '', '') $$, :'initech'
  ),
  '42501', 'new row violates row-level security policy for table "journal"', 'nor writes one'
);
reset role;
reset oml.tenant_id;

select results_eq(
  $$ select name, ok from unnest(array['globex', 'initech', 'provider']) name, oml_verify_chain(name) $$,
  $$ values ('globex', true), ('initech', true), ('provider', true) $$, 'the chains verify after all these attempts'
);

select * from finish();
rollback;
