-- As whom, and where: a login with one tenant and one principal is bound to them, another names them for
-- one transaction.
begin;
\ir shared/refused.sql
select * from no_plan();

create role clerk login in role oml_writer;
create role courier login in role oml_writer;
create role drifter login in role oml_writer;
create role outsider login;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_register_event_type('note.added');
do $$
begin
  perform oml_grant('clerk', 'globex', principal => 'Ada, the clerk');
  perform oml_grant('courier', 'globex');
  perform oml_grant('courier', 'globex', principal => 'ada');
  perform oml_grant('courier', 'initech');
  perform oml_grant('courier', 'acme', '{audit}', 'eve');
end
$$;
create function pg_temp.journalled(uuid, bigint)
returns table (principal text) language sql security definer
as 'select principal from oml.journal where tenant_id = $1 and seq = $2';
create function pg_temp.named(uuid) returns table (name text) language sql security definer as 'select name from oml.tenant where tenant_id = $1';
create function pg_temp.append(tenant text default null)
returns text
language sql
as $$
  select concat_ws(' ', t.name, 'as', j.principal)
  from oml_append('note.added', '{}', tenant => append.tenant) r, pg_temp.journalled(r.tenant_id, r.seq) j, pg_temp.named(r.tenant_id) t
$$;

-- Bound.
set session authorization clerk;
select is(pg_temp.append(), 'globex as Ada, the clerk', 'a login with one tenant and one principal is bound to them');
savepoint before;
select lives_ok($$ select oml_use() $$, 'and may say nothing');
select is(pg_temp.append(), 'globex as Ada, the clerk', 'which changes nothing');
select lives_ok($$ select oml_use('globex', 'Ada, the clerk') $$, 'or say what holds anyway');
select is(pg_temp.append(), 'globex as Ada, the clerk', 'which changes nothing either');
rollback to before;

-- Chosen.
set session authorization courier;
select pg_temp.refused(
  'select oml_append(''note.added'', ''{}'', tenant => ''globex'')', 'OM136',
  'login courier may act as several principals and named none', '%oml_use(principal => …). It may be one of: ada, courier.',
  'a login with several principals must name one'
);
select is(pg_temp.append('initech'), 'initech as courier', 'unless it has one in the tenant it names');
savepoint before;
select lives_ok($$ select oml_use('globex', 'ada') $$, 'it names both');
select is(pg_temp.append(), 'globex as ada', 'for what follows');
select is(pg_temp.append('globex'), 'globex as ada', 'and may repeat the tenant');
select pg_temp.refused(
  $$ select oml_append('note.added', '{}', tenant => 'initech') $$, 'OM135', 'login courier may not act as principal ''ada''',
  'It may act as: courier.', 'the principal counts in every tenant of the transaction'
);
select lives_ok($$ select oml_use('initech') $$, 'it may choose again');
select is(pg_temp.append(), 'initech as courier', 'and what it chose before is forgotten');
select lives_ok($$ select oml_use(principal => 'courier') $$, 'a principal alone may be named');
select is(pg_temp.append('globex'), 'globex as courier', 'with the tenant as an argument');
savepoint inner_one;
select lives_ok($$ select oml_use('globex', 'ada') $$, 'a choice in a subtransaction');
select is(pg_temp.append(), 'globex as ada', 'holds in it');
rollback to inner_one;
select is(pg_temp.append('globex'), 'globex as courier', 'and is undone with it');
set local oml.principal = 'ada';
select is(pg_temp.append('globex'), 'globex as ada', 'oml.principal is a request that oml_use made and SET LOCAL may change');
set local oml.principal = 'Ada, the clerk';
select pg_temp.refused(
  $$ select oml_append('note.added', '{}', tenant => 'globex') $$, 'OM135', 'login courier may not act as principal ''Ada, the clerk''',
  'It may act as: ada, courier.', 'it is checked against the login''s memberships'
);
set local oml.impersonation = 'no uuid';
select throws_ok($$ select oml_append('note.added', '{}', tenant => 'globex') $$, '22P02', null, 'what is no session is none');
set local oml.impersonation = '00000000-0000-0000-0000-000000000000';
select throws_ok($$ select oml_append('note.added', '{}', tenant => 'globex') $$, 'OM130', null, 'nor is a made-up one');
rollback to before;

-- Settings of another transaction are not looked at.
set oml.transaction = '3';
set oml.tenant = 'initech';
set oml.principal = 'ada';
set oml.impersonation = 'no uuid';
select pg_temp.refused(
  $$ select oml_append('note.added', '{}') $$, 'OM002', 'login courier is bound to several tenants and named none', '%oml_use(%',
  'what somebody SET earlier chooses no tenant'
);
select is(pg_temp.append('initech'), 'initech as courier', 'and no principal');
select lives_ok($$ select oml_use('globex', 'courier') $$, 'and does not stand in the way of a choice');
select is(pg_temp.append(), 'globex as courier', 'which holds');
set oml.transaction = '';
select pg_temp.refused(
  $$ select oml_append('note.added', '{}') $$, 'OM002', 'login courier is bound to several tenants and named none', '%oml_use(%',
  'without the transaction''s own mark there is no choice'
);
reset session authorization;
rollback to before;

-- Refusals of oml_use itself.
set session authorization courier;
select pg_temp.refused(
  format('select oml_use(%L, %L)', tenant, principal), code, message, hint, format('oml_use(%s, %s)', tenant, principal)
)
from (values
  ('nowhere', null, 'OM003', 'there is no tenant ''nowhere'' that login courier may use', 'This login may use: acme, globex, initech.'),
  ('provider', null, 'OM003', 'there is no tenant ''provider'' that login courier may use', 'This login may use: acme, globex, initech.'),
  ('globex', 'eve', 'OM135', 'login courier may not act as principal ''eve''', 'It may act as: ada, courier.'),
  (null, 'nobody', 'OM135', 'login courier may not act as principal ''nobody''', 'It may act as: ada, courier, eve.')
) r (tenant, principal, code, message, hint);
set session authorization drifter;
select pg_temp.refused(
  'select oml_use()', 'OM001', 'login drifter is bound to no tenant it may use', '%An operator binds it%', 'a login that is bound to nothing'
);
set session authorization outsider;
select throws_ok('select oml_use()', '42501', 'permission denied for function oml_use', 'outside the group roles it cannot be called');
reset session authorization;

-- What the session proves is never an argument.
select is_empty(
  $$ select p.oid::regprocedure, a from pg_proc p, unnest(p.proargnames) a
     where p.proname ~ '^oml_append' and a in ('principal', 'writer', 'authorization', 'auth', 'impersonation', 'tenant_id', 'seq', 'occurred_at') $$,
  'no append takes principal, writer, authorization or impersonation from its caller'
);
select bag_eq(
  $$ select ok from unnest(array['globex', 'initech', 'provider']) name, oml_verify_chain(name) $$, 'values (true), (true), (true)',
  'the chains verify'
);

select * from finish();
rollback;
