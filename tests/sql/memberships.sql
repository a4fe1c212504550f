-- Memberships: granted and revoked in the open, and in force at once.
begin;
\ir shared/refused.sql
select * from no_plan();

create role operator login in role oml_operator;
create role clerk login in role oml_writer;
create role group_only nologin;
select oml_grant('operator', 'provider', '{operate}');
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_register_event_type('invoice.exported');
select value as deployment from oml.setting where name = 'deployment_id' \gset
select max(seq) as head from oml.journal where tenant_id = :'deployment' \gset

set session authorization clerk;
select throws_ok($$ select oml_append('invoice.exported', '{}') $$, 'OM001', null, 'before it is bound a login may not append');
reset session authorization;

set session authorization operator;
select lives_ok($$ select oml_grant('clerk', 'globex') $$, 'an operator binds a login');
set session authorization clerk;
select is((oml_append('invoice.exported', '{}')).tenant_id, :'globex'::uuid, 'which may append from then on');
set session authorization operator;
select lives_ok(
  $$ select oml_grant('clerk', 'globex', '{append,audit}', 'Clerk of Globex') $$, 'a second grant lets it act as another principal too'
);
select throws_ok(
  format($$ select oml_grant('clerk', 'provider', '{audit,%s}') $$, permission),
  'OM008', 'the provider chain takes no events of applications', permission || ' is not to be had on the provider'
) from unnest(array['append', 'submit']) permission;
select lives_ok($$ select oml_grant('clerk', 'globex', '{append,review}') $$, 'a repeated grant replaces the permissions');
select lives_ok($$ select oml_grant('clerk', 'initech', '{audit}') $$, 'a login may be bound to several tenants');
reset session authorization;
select results_eq(
  $$ select tenant, principal, permissions from oml.membership where login = 'clerk' order by tenant, principal collate "C" $$,
  $$ values ('globex', 'Clerk of Globex', '{append,audit}'::text[]), ('globex', 'clerk', '{append,review}'), ('initech', 'clerk', '{audit}') $$,
  'a membership holds exactly the permissions of its latest grant'
);

set session authorization operator;
select is(oml_revoke('clerk', 'globex', 'nobody'), false, 'a principal as whom a login may not act cannot be taken from it');
select is(oml_revoke('clerk', 'globex', 'clerk'), true, 'an operator takes one principal from a login');
select is(oml_revoke('clerk', 'globex'), true, 'or unbinds it altogether');
select is(oml_revoke('clerk', 'globex'), false, 'a login that is not bound cannot be unbound');
select is(oml_revoke('nobody-at-all', 'globex'), false, 'nor one that does not exist');
select is(oml_revoke('clerk', 'no-such-tenant'), false, 'nor from a tenant that does not exist');
reset session authorization;
set session authorization clerk;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}') $$,
  'OM001', 'login clerk is bound to no tenant it may append to', '%oml_grant(login => %',
  'a revoked login may append no more'
);
reset session authorization;

select results_eq(
  format('select type, principal, payload from oml.journal where tenant_id = %L and seq > %s order by seq', :'deployment', :'head'),
  format(
    $$ values
      ('membership.granted', 'operator',
       '{"login": "clerk", "tenant_id": "%1$s", "tenant": "globex", "principal": "clerk", "permissions": ["append"]}'::jsonb),
      ('membership.granted', 'operator',
       '{"login": "clerk", "tenant_id": "%1$s", "tenant": "globex", "principal": "Clerk of Globex", "permissions": ["append", "audit"]}'),
      ('membership.granted', 'operator',
       '{"login": "clerk", "tenant_id": "%1$s", "tenant": "globex", "principal": "clerk", "permissions": ["append", "review"]}'),
      ('membership.granted', 'operator',
       '{"login": "clerk", "tenant_id": "%2$s", "tenant": "initech", "principal": "clerk", "permissions": ["audit"]}'),
      ('membership.revoked', 'operator', '{"login": "clerk", "tenant_id": "%1$s", "tenant": "globex", "principal": "clerk"}'),
      ('membership.revoked', 'operator', '{"login": "clerk", "tenant_id": "%1$s", "tenant": "globex", "principal": "Clerk of Globex"}') $$,
    :'globex', :'initech'
  ),
  'each change of a membership is one event of the provider chain, and what changed nothing is none'
);

-- A login renamed or dropped leaves its membership to nobody.
select oml_grant('clerk', 'globex');
alter role clerk rename to former_clerk;
set session authorization former_clerk;
select throws_ok($$ select oml_append('invoice.exported', '{}') $$, 'OM001', null, 'a renamed login is another login');
reset session authorization;
alter role former_clerk rename to clerk;

-- A superuser's acts are told apart.
select oml_grant('clerk', 'globex', '{submit}');
select is(
  (select "authorization" from oml.journal where tenant_id = :'deployment' order by seq desc limit 1), 'superuser',
  'what a superuser grants is journalled as such'
);

set session authorization operator;
-- OM003.
select pg_temp.refused(
  $$ select oml_grant('clerk', 'no-such-tenant') $$, 'OM003', 'there is no tenant ''no-such-tenant''', '%oml_create_tenant(%',
  'nobody is bound to a tenant that does not exist'
);
select pg_temp.refused(
  $$ select oml_grant('clerk', null) $$, 'OM003', 'there is no tenant NULL', '%oml_create_tenant(%', 'nor to none'
);
-- OM007.
select pg_temp.refused(
  $$ select oml_grant('nobody-at-all', 'globex') $$, 'OM007', 'there is no login role ''nobody-at-all''',
  'Create it first: create role "nobody-at-all" login in role oml_writer.', 'a role that does not exist is not bound'
);
select pg_temp.refused(
  $$ select oml_grant('group_only', 'globex') $$, 'OM007', 'there is no login role ''group_only''',
  'Create it first: create role group_only login%', 'nor one that cannot log in'
);
select pg_temp.refused(
  $$ select oml_grant(null, 'globex') $$, 'OM007', 'there is no login role NULL', 'Create it first: %', 'nor none'
);
-- OM008.
select pg_temp.refused(
  format('select oml_grant(%L, %L, %L)', 'clerk', 'globex', permissions), 'OM008',
  format('%L are not permissions', permissions), 'Any of append, submit, review, operate, audit.',
  format('%s are not permissions', permissions)
)
from unnest(array['{}', '{append,fly}', '{APPEND}', '{append,NULL}', '{""}']::text[]) as permissions;
select pg_temp.refused(
  $$ select oml_grant('clerk', 'globex', null) $$, 'OM008', 'NULL are not permissions',
  'Any of append, submit, review, operate, audit.', 'no permissions are none'
);
-- OM009.
select pg_temp.refused(
  format('select oml_grant(%L, %L, principal => %L)', 'clerk', 'globex', repeat('x', length)), 'OM009',
  format('a principal of %s bytes', length), 'A principal has 1 to 256 bytes;%', format('a principal of %s bytes is refused', length)
)
from unnest(array[0, 257]) as length;
reset session authorization;
-- OM051: every verb that changes something.
select pg_temp.refused(
  format($$ do $do$ begin set local transaction_read_only = on; perform %s; end $do$ $$, call), 'OM051',
  'the transaction is read-only: nothing can be appended in it', 'Begin it READ WRITE%', format('%s in a read-only transaction', call)
)
from unnest(array[
  'oml_create_tenant(''umbrella'')', 'oml_grant(''clerk'', ''globex'')', 'oml_revoke(''clerk'', ''globex'')',
  'oml_register_event_type(''invoice.lost'')', 'oml_configure(''lake_url'', ''file:///elsewhere'')'
]) as call;

select ok((select ok from oml_verify_chain('provider')), 'the provider chain verifies');

select * from finish();
rollback;
