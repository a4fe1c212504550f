-- Who may append: the login's memberships decide, and a refusal tells a stranger nothing.
begin;
\ir shared/refused.sql
select plan(43);

create role drifter login in role oml_writer;
create role clerk login in role oml_writer;
create role courier login in role oml_writer;
create role auditor login in role oml_writer, oml_auditor;
create role outsider login;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_register_event_type('invoice.exported');
do $$
begin
  perform oml_grant('clerk', 'globex');
  perform oml_grant('courier', 'globex');
  perform oml_grant('courier', 'initech');
  perform oml_grant('auditor', 'globex', '{audit}');
  perform oml_grant('auditor', 'acme', '{audit,review,submit}');
end
$$;

-- OM001: bound to nothing.
set session authorization drifter;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}') $$,
  'OM001', 'login drifter is bound to no tenant it may append to', '%oml_grant(login => %',
  'a login that is bound to no tenant is refused'
);
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}', tenant => 'globex') $$,
  'OM001', 'login drifter is bound to no tenant it may append to', '%oml_grant(login => %',
  'an unbound login is refused although it names a tenant'
);
select pg_temp.refused(
  $$ select oml_append('no.such-type', '[]', tenant => 'globex') $$,
  'OM001', 'login drifter is bound to no tenant it may append to', '%oml_grant(login => %',
  'an unbound login learns nothing about the event it tried'
);
reset session authorization;
set session authorization auditor;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}', tenant => 'globex') $$,
  'OM001', 'login auditor is bound to no tenant it may append to', '%oml_grant(login => %',
  'memberships without the permission append do not let a login append'
);
reset session authorization;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}') $$,
  'OM001', format('login %I is bound to no tenant it may append to', session_user), '%oml_grant(login => %',
  'a superuser is bound like anybody else'
);
set session authorization outsider;
select throws_ok(
  $$ select oml_append('invoice.exported', '{}') $$,
  '42501', 'permission denied for function oml_append',
  'a login outside oml_writer may not call oml_append at all'
);
reset session authorization;

-- OM002: bound to several, named none.
set session authorization courier;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}') $$,
  'OM002', 'login courier is bound to several tenants and named none', '%globex, initech%',
  'a login of several tenants that names none is refused'
);
select is(
  (select tenant_id from oml_append('invoice.exported', '{}', tenant => 'initech')), :'initech',
  'a login of several tenants appends to the one it names'
);
reset session authorization;

-- OM003: unknown and other people's tenants.
set session authorization clerk;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}', tenant => 'nowhere') $$,
  'OM003', 'there is no tenant ''nowhere'' that login clerk may append to', 'This login may append to: globex.',
  'an unknown tenant is refused'
);
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}', tenant => 'initech') $$,
  'OM003', 'there is no tenant ''initech'' that login clerk may append to', 'This login may append to: globex.',
  'another''s tenant is refused'
);
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}', tenant => 'provider') $$,
  'OM003', 'there is no tenant ''provider'' that login clerk may append to', 'This login may append to: globex.',
  'the provider is another''s tenant'
);
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}', tenant => 'GLOBEX') $$,
  'OM003', 'there is no tenant ''GLOBEX'' that login clerk may append to', 'This login may append to: globex.',
  'a tenant''s name is taken literally'
);
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}', tenant => '') $$,
  'OM003', 'there is no tenant '''' that login clerk may append to', 'This login may append to: globex.',
  'the empty name is a name, not an absent one'
);
select is(
  replace(pg_temp.refusal_of($$ select oml_append('invoice.exported', '{}', tenant => 'initech') $$)::text, 'initech', 'nowhere'),
  pg_temp.refusal_of($$ select oml_append('invoice.exported', '{}', tenant => 'nowhere') $$)::text,
  'an unknown tenant and another''s are refused alike in SQLSTATE, message, detail, hint and context'
);
select is(
  (select tenant_id from oml_append('invoice.exported', '{}')), :'globex',
  'a login of one tenant is bound to it'
);
select is(
  (select tenant_id from oml_append('invoice.exported', '{}', tenant => 'globex')), :'globex',
  'a login of one tenant may name it'
);
reset session authorization;

select oml_grant('clerk', 'initech', '{audit}');
set session authorization clerk;
select is(
  (select tenant_id from oml_append('invoice.exported', '{}')), :'globex',
  'a membership without append does not make the tenant ambiguous'
);

-- What the session is now does not matter, only who logged in.
set role oml_writer;
select is(
  (select tenant_id from oml_append('invoice.exported', '{}')), :'globex',
  'SET ROLE does not change whose memberships count'
);
reset role;
reset session authorization;
set role clerk;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}') $$,
  'OM001', format('login %I is bound to no tenant it may append to', session_user), '%oml_grant(login => %',
  'who becomes a login by SET ROLE does not gain its memberships'
);
reset role;

select * from finish();
rollback;
