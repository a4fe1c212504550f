-- One tenant never reaches another: no table is open to a login, and each function keeps to its caller.
begin;
\ir shared/refused.sql
select plan(387);

create role clerk login in role oml_writer, oml_reviewer, oml_operator, oml_auditor, oml_daemon;
create schema clerk authorization clerk;
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
reset session authorization;

-- No table is open. Reading and writing server files is granted so that COPY meets the table's own privilege.
grant pg_read_server_files, pg_write_server_files to clerk;
create temporary table target as
select relname::text as name, relkind = 'S' as is_sequence
from pg_class where relnamespace = 'oml'::regnamespace and relkind in ('r', 'p', 'S');
grant select on target to clerk;
create temporary table approach (name text, statement text, for_sequence boolean);
grant select on approach to clerk;
insert into approach values
  ('SELECT', 'select * from oml.%I', false), ('SELECT of no column', 'select from oml.%I', false),
  ('SELECT FOR UPDATE', 'select * from oml.%I for update', false),
  ('INSERT', 'insert into oml.%I default values', false), ('UPDATE', 'update oml.%I set ctid = ctid', false),
  ('DELETE', 'delete from oml.%I', false), ('TRUNCATE', 'truncate oml.%I', false),
  ('COPY TO', 'copy oml.%I to ''/dev/null''', false), ('COPY FROM', 'copy oml.%I from ''/dev/null''', false),
  ('LOCK', 'lock table oml.%I in access share mode', false),
  ('LOCK EXCLUSIVE', 'lock table oml.%I in access exclusive mode', false),
  ('CREATE TRIGGER', 'create trigger mine before insert on oml.%I execute function suppress_redundant_updates_trigger()', false),
  ('CREATE POLICY', 'create policy mine on oml.%I using (true)', false),
  ('CREATE RULE', 'create rule mine as on insert to oml.%I do instead nothing', false),
  ('CREATE INDEX', 'create index on oml.%I ((1))', false),
  ('DISABLE ROW LEVEL SECURITY', 'alter table oml.%I disable row level security', false),
  ('DISABLE TRIGGER', 'alter table oml.%I disable trigger all', false),
  ('DROP', 'drop table oml.%I', false), ('GRANT', 'grant select on oml.%I to clerk', false),
  ('COMMENT', 'comment on table oml.%I is ''mine''', false),
  ('INHERIT', 'create temporary table mine () inherits (oml.%I)', false),
  ('nextval', 'select nextval(''oml.%I'')', true), ('currval', 'select currval(''oml.%I'')', true),
  ('setval', 'select setval(''oml.%I'', 1)', true), ('SELECT of a sequence', 'select * from oml.%I', true),
  ('ALTER SEQUENCE', 'alter sequence oml.%I restart', true), ('DROP SEQUENCE', 'drop sequence oml.%I', true);
set session authorization clerk;
select matches(
  (select sqlstate || ' ' || message from pg_temp.refusal_of(
    case a.name when 'UPDATE' then format('update oml.%I set %I = default', t.name, (
      select attname from pg_attribute where attrelid = format('oml.%I', t.name)::regclass and attnum = 1
    )) else format(a.statement, t.name) end
  )),
  format('^42501 (permission denied for|must be owner of) (table|relation|sequence) %s$', t.name),
  format('%s on %s is refused to a login', a.name, t.name)
)
from target t join approach a on a.for_sequence = t.is_sequence
order by t.name, a.name;
set row_security = off;
select throws_ok('select * from oml.journal', '42501', null, 'row_security = off opens nothing');
select throws_ok(
  $$ select oml_append('invoice.exported', '{}') $$, '42501', 'query would be affected by row-level security policy for table "event_type"',
  'and no function works under it'
);
reset row_security;
select throws_ok(statement, '42501', null, format('nobody makes %s in schema oml', name))
from (values
  ('a table', 'create table oml.mine ()'), ('a view', 'create view oml.mine as select 1 as one'),
  ('a function', 'create function oml.mine() returns int language sql as ''select 1'''),
  ('an operator', 'create operator oml.= (leftarg = uuid, rightarg = uuid, function = uuid_eq)')
) v (name, statement);
select throws_ok(
  'create table clerk.mine (tenant_id uuid references oml.tenant)', '42501', 'permission denied for table tenant',
  'no table of a login refers to one of OML''s'
);
reset session authorization;

-- The setting that the policies read is no way in.
create temporary table answers (tenant_id uuid, seq bigint, n int);
grant insert on answers to clerk;
select set_config('test.initech', :'initech', true);
set session authorization clerk;
set oml.tenant_id = :'initech';
select throws_ok('select * from oml.journal', '42501', null, 'with oml.tenant_id set to another tenant the journal stays closed');
insert into answers select r.tenant_id, r.seq, 1 from oml_append('invoice.exported', '{}') r;
set oml.tenant_id = 'no uuid';
insert into answers select r.tenant_id, r.seq, 2 from oml_append('invoice.exported', '{}') r;
insert into answers
select r.tenant_id, r.seq, 3
from (select set_config('oml.tenant_id', current_setting('test.initech'), false) offset 0) s, oml_append('invoice.exported', '{}') r;
reset session authorization;
select results_eq(
  'select tenant_id, seq from answers order by n',
  format('values (%1$L::uuid, 3::bigint), (%1$L, 4), (%1$L, 5)', :'globex'),
  'and an append goes to the caller''s tenant whatever it says'
);
set session authorization clerk;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}', tenant => 'initech') $$, 'OM003',
  'there is no tenant ''initech'' that login clerk may append to', 'This login may append to: globex.',
  'to name another tenant is refused'
);
select is(
  (oml_append('invoice.exported', '{}', idempotency_key => 'order 1')).seq, 6::bigint,
  'another tenant''s idempotency key says nothing'
);
reset session authorization;

-- What only the owners may call.
create temporary table internal as
select p.oid, p.oid::regprocedure::text as signature, p.prorettype = 'trigger'::regtype as is_trigger,
  format('select %s(%s)', p.oid::regproc, (
    select string_agg(
      format('%snull::%s', case when p.provariadic <> 0 and n = p.pronargs then 'variadic ' end, format_type(t, null)), ', ' order by n
    )
    from unnest(p.proargtypes) with ordinality a (t, n)
  )) as call
from pg_depend d
join pg_extension e on e.oid = d.refobjid and e.extname = 'oml' and d.refclassid = 'pg_extension'::regclass
join pg_proc p on p.oid = d.objid and d.classid = 'pg_proc'::regclass
where d.deptype = 'e'
  and p.proname not in (
    'oml_append', 'oml_create_tenant', 'oml_grant', 'oml_revoke', 'oml_register_event_type', 'oml_verify_chain',
    'chain_rows', 'known_heads', 'deployment_id'
  )
  and p.proname !~ '^lake_';
grant select on internal to public;
select ok(
  array['append_event', 'seal', 'signer_public_key', 'read_signer', 'load_core', 'create_chain', 'append_provider_event', 'chain_page_end',
    'prove_chain', 'attach', 'create_tables', 'require_provider', 'require_audit', 'guard_append_only']
    <@ array(select p.proname::text from internal join pg_proc p using (oid)),
  'the functions that write, sign, read and attach are internal'
);
set role oml_writer;
select throws_ok(call, '42501', null, format('oml_writer may not call %s', signature)) from internal where not is_trigger;
set role oml_reviewer;
select throws_ok(call, '42501', null, format('oml_reviewer may not call %s', signature)) from internal where not is_trigger;
set role oml_operator;
select throws_ok(call, '42501', null, format('oml_operator may not call %s', signature)) from internal where not is_trigger;
set role oml_auditor;
select throws_ok(call, '42501', null, format('oml_auditor may not call %s', signature)) from internal where not is_trigger;
set role oml_daemon;
select throws_ok(call, '42501', null, format('oml_daemon may not call %s', signature)) from internal where not is_trigger;
reset role;
set session authorization clerk;
create temporary table mine (x int);
select throws_ok(
  format('create trigger mine before insert on mine for each row execute function %s', signature), '42501', null,
  format('nor may a login hang %s on a table of its own', signature)
)
from internal where is_trigger;
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
select is_empty(
  format('select from oml.chain_head where tenant_id = %L for update', :'initech'), 'nor lock another''s chain'
);
select throws_ok(statement, '42501', null, format('oml_kernel may not %s', name))
from (values
  ('update the journal', 'update oml.journal set payload = null'), ('delete from it', 'delete from oml.journal'),
  ('truncate it', 'truncate oml.journal'), ('alter it', 'alter table oml.journal disable row level security'),
  ('drop its guards', 'drop trigger guard_rows on oml.journal'), ('read the outbox', 'select * from oml.outbox'),
  ('read the tenants', 'select * from oml.tenant'), ('bind a login', 'insert into oml.membership default values'),
  ('change a setting', 'update oml.setting set value = ''x'''), ('register a type', 'insert into oml.event_type (type) values (''a.b'')'),
  ('move the frontier', 'update oml.frontier set seq = 9'), ('make a table', 'create table oml.mine ()')
) v (name, statement);
select throws_ok(
  'update oml.chain_head set chain_no = 7', 'OM060', null, 'oml_kernel may lock its chain_head row but not change it'
);
reset role;

set role oml_fleet;
select cmp_ok((select count(distinct tenant_id) from oml.journal), '>=', 3::bigint, 'oml_fleet sees every tenant');
select throws_ok(statement, '42501', null, format('oml_fleet may not %s', name))
from (values
  ('write an event', 'insert into oml.journal default values'), ('update the journal', 'update oml.journal set payload = null'),
  ('delete from it', 'delete from oml.journal'), ('truncate it', 'truncate oml.journal'),
  ('alter it', 'alter table oml.journal disable trigger all'), ('delete from the outbox', 'delete from oml.outbox'),
  ('queue', 'insert into oml.outbox (tenant_id, chain_seq, target) values (gen_random_uuid(), 1, ''x'')'),
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
