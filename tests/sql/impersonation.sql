-- Acting as another: a session with a reason, which every event under it carries in its signed bytes.
begin;
\ir shared/refused.sql
select * from no_plan();

create role clerk login in role oml_writer;
create role support login in role oml_operator, oml_writer;
create role chief login in role oml_operator, oml_writer;
create role other_support login in role oml_operator, oml_writer;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_register_event_type('note.added');
do $$
begin
  perform oml_grant('clerk', 'globex', principal => 'ada');
  perform oml_grant('clerk', 'initech', '{audit}', 'ada');
  perform oml_grant('support', 'globex', '{append}', 'own');
  perform oml_grant('support', 'provider', '{operate}', 'Sue of Support');
  perform oml_grant('other_support', 'globex', '{operate}');
  perform oml_grant('chief', 'provider', '{operate}');
end
$$;
create function pg_temp.sessions() returns setof oml.impersonation language sql security definer as 'select * from oml.impersonation';
select value as deployment from oml.setting where name = 'deployment_id' \gset
select max(seq) as head from oml.journal where tenant_id = :'deployment' \gset

set session authorization support;
select oml_impersonate('globex', 'ada', '  ticket 4711 ', interval '5 minutes') as session \gset
select lives_ok(format('select oml_use(impersonation => %L)', :'session'), 'a session is used in a transaction');
select oml_append('note.added', '{"n": 1}', idempotency_key => 'k') as receipt \gset
select is(oml_append('note.added', '{"n": 1}', idempotency_key => 'k')::text, :'receipt', 'it is the principal''s own request');
select lives_ok(format('select oml_use(%L, %L, %L)', 'globex', 'ada', :'session'), 'tenant and principal may be repeated');
reset session authorization;
select results_eq(
  format('select principal, writer, "authorization", impersonation::jsonb from oml.journal where tenant_id = %L and seq = 2', :'globex'),
  format(
    $$ values ('ada', 'support', 'impersonation:append',
         jsonb_build_object('session', %L, 'by', 'Sue of Support', 'reason', 'ticket 4711')) $$, :'session'
  ),
  'the event says who acted, as whom, under which session and why'
);
select is(
  position(convert_to(impersonation, 'UTF8') in envelope) > 0, true, 'in the bytes that are signed'
)
from oml.journal where tenant_id = :'globex' and seq = 2;
select results_eq(
  format('select type, principal, writer, payload - %L from oml.journal where tenant_id = %L and seq > %s', 'expires_at', :'deployment', :'head'),
  format(
    $$ values ('impersonation.started', 'Sue of Support', 'support', jsonb_build_object(
         'session_id', %L, 'login', 'support', 'by_principal', 'Sue of Support', 'tenant_id', %L, 'tenant', 'globex',
         'principal', 'ada', 'reason', 'ticket 4711')) $$, :'session', :'globex'
  ),
  'and its beginning is journalled on the provider chain'
);

-- What was appended in the principal's name is not the principal's own request.
savepoint as_clerk;
set session authorization clerk;
select oml_use('globex');
select pg_temp.refused(
  $$ select oml_append('note.added', '{"n": 1}', tenant => 'globex', idempotency_key => 'k') $$, 'OM014',
  'idempotency key ''k'' was used for another request (seq 2)', '%', 'a key that was used under an impersonation stands for that request'
);
rollback to as_clerk;

-- It is the login's own, for its tenant and principal.
set session authorization other_support;
select pg_temp.refused(
  format('select oml_use(impersonation => %L)', :'session'), 'OM130', format('login other_support has no impersonation session %s', :'session'),
  'Begin one: select oml_impersonate(%', 'another login cannot use it'
);
select pg_temp.refused(
  format('select oml_end_impersonation(%L)', :'session'), 'OM004', 'login other_support lacks the permission operate on the provider', '%',
  'nor end it'
);
set session authorization support;
select pg_temp.refused(
  format('select oml_use(%L, %L, %L)', tenant, principal, :'session'), 'OM133',
  format('impersonation %s is not of that tenant and principal', :'session'), 'Leave tenant and principal out%', 'it is of one tenant and one principal'
)
from (values ('initech', null), (null, 'eve'), ('globex', 'Ada')) r (tenant, principal);
select oml_use(impersonation => :'session');
select pg_temp.refused(
  'select oml_append(''note.added'', ''{}'', tenant => ''initech'')', 'OM133',
  format('impersonation %s is not of that tenant and principal', :'session'), 'Leave tenant and principal out%', 'also when an append names another tenant'
);

-- Nothing lasts longer than what it rests on.
savepoint before;
reset session authorization;
select oml_revoke('clerk', 'globex');
set session authorization support;
select pg_temp.refused(
  'select oml_append(''note.added'', ''{}'')', 'OM132', 'there is no principal ''ada'' to impersonate in tenant ''globex''', '%',
  'the principal has lost its permission'
);
rollback to before;
reset session authorization;
select oml_revoke('support', 'provider');
set session authorization support;
select pg_temp.refused(
  'select oml_append(''note.added'', ''{}'')', 'OM004', 'login support lacks the permission operate on the provider', '%',
  'the login has lost its own'
);
rollback to before;
reset session authorization;
select oml_revoke('support', 'provider', 'Sue of Support');
select oml_grant('support', 'provider', '{operate}', 'Sam');
set session authorization support;
select pg_temp.refused(
  'select oml_append(''note.added'', ''{}'')', 'OM004', 'login support lacks the permission operate on the provider', '%',
  'who impersonates is no longer one of its principals'
);
rollback to before;
select is(oml_end_impersonation(:'session'), true, 'it is ended by its login');
select is(oml_end_impersonation(:'session'), false, 'once');
select pg_temp.refused(
  'select oml_append(''note.added'', ''{}'')', 'OM131', format('impersonation %s has ended', :'session'), 'Begin a new one%',
  'then it is over, also in a transaction that had begun to use it'
);
rollback to before;
set session authorization chief;
select is(oml_end_impersonation(:'session'), true, 'an operator of the provider ends anybody''s');
select is(oml_end_impersonation(gen_random_uuid()), false, 'what does not exist cannot be ended');
reset session authorization;
select is(
  (select type || ' ' || (payload ->> 'session_id') from oml.journal where tenant_id = :'deployment' order by seq desc limit 1),
  'impersonation.ended ' || :'session', 'which is journalled'
);
rollback to before;
reset session authorization;
insert into oml.impersonation (session_id, login, by_principal, tenant_id, tenant, principal, reason, started_at, expires_at)
values ('00000000-0000-7000-8000-000000000000', 'support', 'x', :'globex', 'globex', 'ada', 'x', now() - interval '2 hours', now() - interval '1 hour');
set session authorization support;
select pg_temp.refused(
  $$ select oml_use(impersonation => '00000000-0000-7000-8000-000000000000') $$, 'OM131',
  'impersonation 00000000-0000-7000-8000-000000000000 has ended', 'Begin a new one%', 'a session ends by itself'
);

-- Beginning one.
select pg_temp.refused(
  format('select oml_impersonate(%L, %L, %L, %L)', tenant, principal, reason, duration), code, message, '%', why
)
from (values
  ('initech', 'ada', 'why', '1 hour', 'OM132', 'there is no principal ''ada'' to impersonate in tenant ''initech''', 'who may only audit cannot be impersonated to append'),
  ('nowhere', 'ada', 'why', '1 hour', 'OM132', 'there is no principal ''ada'' to impersonate in tenant ''nowhere''', 'nor anybody in a tenant that does not exist'),
  ('globex', 'eve', 'why', '1 hour', 'OM132', 'there is no principal ''eve'' to impersonate in tenant ''globex''', 'the principal must exist'),
  ('globex', 'own', 'why', '1 hour', 'OM132', 'there is no principal ''own'' to impersonate in tenant ''globex''', 'and be another''s'),
  ('globex', 'ada', null, '1 hour', 'OM134', 'an impersonation needs a reason of 1 to 512 bytes', 'no reason'),
  ('globex', 'ada', '  ', '1 hour', 'OM134', 'an impersonation needs a reason of 1 to 512 bytes', 'an empty reason'),
  ('globex', 'ada', repeat('x', 513), '1 hour', 'OM134', 'an impersonation needs a reason of 1 to 512 bytes', 'a long reason'),
  ('globex', 'ada', 'why', '0 s', 'OM134', 'an impersonation of 00:00:00', 'no time'),
  ('globex', 'ada', 'why', '25 hours', 'OM134', 'an impersonation of 25:00:00', 'more than a day'),
  ('globex', 'ada', 'why', null, 'OM134', 'an impersonation of no duration', 'for ever')
) r (tenant, principal, reason, duration, code, message, why);
set session authorization other_support;
select pg_temp.refused(
  $$ select oml_impersonate('globex', 'ada', 'why') $$, 'OM004', 'login other_support lacks the permission operate on the provider', '%',
  'operate on a tenant is not enough'
);
reset session authorization;
select oml_grant('chief', 'provider', '{operate}', 'deputy');
set session authorization chief;
select pg_temp.refused(
  $$ select oml_impersonate('globex', 'ada', 'why') $$, 'OM136', 'login chief may act as several principals and named none', '%oml_use(%deputy%',
  'an operator with several principals says as whom'
);
select oml_use(principal => 'deputy');
select oml_impersonate('globex', 'ada', 'why') as of_the_deputy \gset
select is(
  (select by_principal from pg_temp.sessions() where session_id = :'of_the_deputy'), 'deputy', 'and is named in the session'
);
set session authorization clerk;
select throws_ok($$ select oml_impersonate('globex', 'ada', 'why') $$, '42501', null, 'outside oml_operator it cannot be called');
reset session authorization;
select bag_eq(
  $$ select ok from unnest(array['globex', 'initech', 'provider']) name, oml_verify_chain(name) $$, 'values (true), (true), (true)', 'the chains verify'
);

select * from finish();
rollback;
