-- Acts of the deployment are signed as what the operator is on the provider.
begin;
\ir shared/refused.sql
select * from no_plan();

create role alices_login login in role oml_operator;
create role both_login login in role oml_operator;
select oml_create_tenant('globex') as globex \gset
do $$
begin
  perform oml_grant('alices_login', 'provider', '{operate}', 'alice');
  perform oml_grant('alices_login', 'globex', '{append}', 'somebody else');
  perform oml_grant('both_login', 'provider', '{operate}', 'bob');
  perform oml_grant('both_login', 'provider', '{operate}', 'carol');
  perform oml_grant('both_login', 'provider', '{audit}', 'dave');
end
$$;
create function pg_temp.latest()
returns text
language sql
security definer
as $$
  select concat_ws(', ', j.type, j.principal, j.writer, j."authorization")
  from oml.journal j join oml.tenant t using (tenant_id) where t.name = 'provider' order by j.seq desc limit 1
$$;

set session authorization alices_login;
select oml_register_event_type('note.added');
select is(pg_temp.latest(), 'event-type.registered, alice, alices_login, membership:operate', 'an act carries the principal of the membership on the provider');
select oml_create_tenant('initech') as initech \gset
reset session authorization;
select is(
  (select principal || ', ' || writer || ', ' || "authorization" from oml.journal where tenant_id = :'initech' and seq = 1),
  'alice, alices_login, tenant.created', 'and so does the genesis of a tenant'
);

set session authorization both_login;
select pg_temp.refused(
  $$ select oml_register_event_type('note.moved') $$, 'OM136', 'login both_login may act as several principals and named none',
  '%oml_use(principal => …). It may be one of: bob, carol.', 'who operates as several says as whom'
);
savepoint before;
select oml_use(principal => 'carol');
select oml_register_event_type('note.moved');
select is(pg_temp.latest(), 'event-type.registered, carol, both_login, membership:operate', 'and is recorded as that one');
rollback to before;
select oml_use(principal => 'dave');
select pg_temp.refused(
  $$ select oml_register_event_type('note.moved') $$, 'OM135', 'login both_login may not act as principal ''dave''', 'It may act as: bob, carol.',
  'a principal that may only audit operates nothing'
);
rollback to before;
reset session authorization;
select oml_register_event_type('note.moved');
select is(pg_temp.latest(), format('event-type.registered, %1$s, %1$s, superuser', session_user), 'a superuser acts as itself');
select bag_eq(
  $$ select ok from unnest(array['globex', 'initech', 'provider']) name, oml_verify_chain(name) $$, 'values (true), (true), (true)', 'the chains verify'
);

select * from finish();
rollback;
