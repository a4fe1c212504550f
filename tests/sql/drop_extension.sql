-- The data outlives the extension: dropping it takes guards and functions, never a row.
begin;
set local client_min_messages = warning;
\ir shared/refused.sql
select * from no_plan();

create role clerk login in role oml_writer;
select oml_create_tenant('globex') as globex \gset
select oml_grant('clerk', 'globex');
select oml_register_event_type('invoice.exported');
set session authorization clerk;
select oml_append('invoice.exported', jsonb_build_object('i', i), idempotency_key => 'order ' || i) from generate_series(1, 20) i;
reset session authorization;
create function pg_temp.shape()
returns setof text
language sql
as $$
  select format('%s belongs to %s, row security %s %s, %s', c.oid::regclass, c.relowner::regrole, c.relrowsecurity, c.relforcerowsecurity, c.relacl)
  from pg_class c where c.relnamespace = 'oml'::regnamespace and c.relkind <> 'c'
  union all
  select format('%s.%s %s', c.oid::regclass, a.attname, a.attacl)
  from pg_class c join pg_attribute a on a.attrelid = c.oid where c.relnamespace = 'oml'::regnamespace and a.attacl is not null
  union all
  select format('%s %s', pg_get_triggerdef(t.oid), t.tgenabled)
  from pg_trigger t join pg_class c on c.oid = t.tgrelid where c.relnamespace = 'oml'::regnamespace and not t.tgisinternal
  union all
  select format('policy %s', p) from pg_policies p where p.schemaname = 'oml'
  union all
  select format('%s.%s defaults to %s', d.adrelid::regclass, d.adnum, pg_get_expr(d.adbin, d.adrelid))
  from pg_attrdef d join pg_class c on c.oid = d.adrelid where c.relnamespace = 'oml'::regnamespace
$$;
create temporary table shape as select pg_temp.shape() as line;
select pg_temp.stored() as stored \gset

-- Without CASCADE.
select throws_ok(
  'drop extension oml', '2BP01', 'cannot drop extension oml because other objects depend on it',
  'DROP EXTENSION is refused, since the tables'' guards depend on it'
);
select throws_ok(
  format('drop function %s', p.oid::regprocedure), '2BP01', null, format('nor can %s be taken out of it', p.proname)
)
from pg_proc p where p.oid in ('oml.guard_append_only'::regproc, 'oml.derive'::regproc, 'oml.draw_outbox_seq'::regproc) order by p.proname;

-- With CASCADE.
drop extension oml cascade;
select is(pg_temp.stored(), :'stored', 'DROP EXTENSION CASCADE leaves every row of every table');
select is(to_regprocedure('oml.append_own_event(uuid,text,jsonb,text,text,uuid)'), null, 'and takes the functions');
select is_empty(
  $$ select p.oid::regprocedure from pg_proc p where p.pronamespace = 'oml'::regnamespace or p.proname ~ '^oml_' $$,
  'all of them'
);
select ok(relrowsecurity and relforcerowsecurity, format('row-level security stays forced on %s', relname))
from pg_class where relnamespace = 'oml'::regnamespace and relkind = 'r' order by relname;
select set_ne('select pg_temp.shape()', 'select line from shape', 'the guards and the outbox default are gone');

-- And back.
create extension oml;
select is(pg_temp.stored(), :'stored', 'CREATE EXTENSION changes no row');
select set_eq('select pg_temp.shape()', 'select line from shape', 'it brings guards, defaults, policies and grants back as they were, at once');
select is_empty(
  $$ select c.relname from pg_depend d join pg_class c on c.oid = d.objid and d.classid = 'pg_class'::regclass
     where d.refclassid = 'pg_extension'::regclass and c.relnamespace = 'oml'::regnamespace and c.relkind <> 'c' $$,
  'without making a table its member'
);
select is_empty(
  $$ select c.relname from pg_init_privs p join pg_class c on c.oid = p.objoid and p.classoid = 'pg_class'::regclass
     where c.relnamespace = 'oml'::regnamespace $$,
  'or its grants a matter of the extension''s, which pg_dump would leave out'
);
select throws_ok(statement, 'OM060', null, format('%s is refused again', statement))
from unnest(array[
  'delete from oml.journal', 'update oml.outbox set seq = seq', 'truncate oml.journal', 'delete from oml.chain_head'
]) as statement;
select lives_ok('select oml_attach()', 'oml_attach() can be repeated');
select lives_ok('select oml_attach()', 'any number of times');
select set_eq('select pg_temp.shape()', 'select line from shape', 'and changes nothing where nothing is missing');
select is(pg_temp.stored(), :'stored', 'nor any row');
select throws_ok(
  $$ select oml_genesis('again') $$, 'OM020', null, 'the database has still had its genesis'
);

set session authorization clerk;
select is((oml_append('invoice.exported', '{"i": 21}')).seq, 22::bigint, 'the chain goes on');
select is(
  (oml_append('invoice.exported', '{"i": 7}', idempotency_key => 'order 7')).seq, 8::bigint, 'old idempotency keys are still known'
);
reset session authorization;
select is(
  (select array_agg(chain_seq order by seq) from oml.outbox where tenant_id = :'globex'), array(select generate_series(1::bigint, 22)),
  'what is appended is queued'
);
select results_eq(
  $$ select name, ok from unnest(array['globex', 'provider']) name, oml_verify_chain(name) $$,
  $$ values ('globex', true), ('provider', true) $$, 'and the chains verify'
);

-- oml_attach() brings back what somebody took away piece by piece.
alter table oml.journal disable row level security;
alter table oml.membership no force row level security;
drop policy kernel_read on oml.journal;
drop trigger guard_rows on oml.journal;
drop trigger derive on oml.journal;
alter table oml.outbox disable trigger guard_truncate;
alter table oml.tenant enable trigger guard_rows;
alter table oml.outbox alter column seq drop default;
alter policy kernel_insert on oml.journal with check (true);
grant select, update on oml.journal to public;
grant delete on oml.journal to oml_kernel;
grant update (payload) on oml.journal to oml_kernel;
revoke select on oml.membership from oml_kernel;
create policy stray on oml.journal for select to clerk using (true);
grant select (payload) on oml.journal to clerk;
grant select on oml.journal to oml_auditor;
grant usage on sequence oml.outbox_seq to clerk;
select set_ne('select pg_temp.shape()', 'select line from shape', 'whatever is taken away, altered or granted');
select oml_attach();
select set_eq('select pg_temp.shape()', 'select line from shape', 'oml_attach() sets right');
set session authorization clerk;
select throws_ok('select payload from oml.journal', '42501', null, 'nothing that was opened stays open');
select throws_ok($$ select nextval('oml.outbox_seq') $$, '42501', null, 'not the outbox sequence either');
reset session authorization;

-- Whoever drops the schema itself has asked for it.
drop extension oml cascade;
select throws_ok('drop schema oml', '2BP01', null, 'the schema does not go with its tables unless CASCADE is said');

select * from finish();
rollback;
