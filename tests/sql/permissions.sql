-- What a login may do: group roles let it call, memberships let the call go through.
begin;
\ir shared/refused.sql
select * from no_plan();

create role nobody login;
create role stranger login in role oml_writer, oml_reviewer, oml_operator, oml_auditor, oml_daemon;
create role insider login in role oml_writer, oml_reviewer, oml_operator, oml_auditor, oml_daemon;
create role provider_reviewer login in role oml_writer, oml_reviewer, oml_operator, oml_auditor, oml_daemon;
create role provider_auditor login in role oml_writer, oml_reviewer, oml_operator, oml_auditor, oml_daemon;
create role provider_operator login in role oml_writer, oml_reviewer, oml_operator, oml_auditor, oml_daemon;
create role clerk login in role oml_writer;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_grant('insider', 'globex', '{append,submit,review,operate,audit}');
select oml_grant('provider_reviewer', 'provider', '{review}');
select oml_grant('provider_auditor', 'provider', '{audit}');
select oml_grant('provider_operator', 'provider', '{operate}');
select oml_grant('clerk', 'globex');
select oml_register_event_type('invoice.exported');
select value as deployment from oml.setting where name = 'deployment_id' \gset

select oml_issue_key(decode(repeat('ab', 32), 'hex'), 'signing') as standby \gset

select format('select oml.tlog_record(%L, 1, 1, %L, %L)', :'globex', r.root, s.checkpoint) as recording
from oml.tlog_root(:'globex', 1, 1, false) r, oml.chain_head h join oml.key k on k.kid = h.kid,
  oml.seal_checkpoint((select value from oml.setting where name = 'signer'), k.kid, k.public_key, :'deployment', h.tenant_id, 1, 1, r.root) s
where h.tenant_id = :'globex' \gset

create temporary table verb (name text, call text, operate boolean, audit boolean, lacks text);
grant select on verb to public;
insert into verb values
  ('oml_create_tenant', $$ select oml_create_tenant('umbrella') $$, true, false, 'operate'),
  ('oml_grant', $$ select oml_grant('clerk', 'globex', '{append,audit}') $$, true, false, 'operate'),
  ('oml_revoke', $$ select oml_revoke('clerk', 'globex') $$, true, false, 'operate'),
  ('oml_register_event_type', $$ select oml_register_event_type('invoice.lost') $$, true, false, 'operate'),
  ('oml_issue_key', $$ select oml_issue_key(decode(repeat('cd', 32), 'hex'), 'signing') $$, true, false, 'operate'),
  ('oml_retire_key', format('select oml_retire_key(%L)', :'standby'), true, false, 'operate'),
  ('oml_retire_event_type', $$ select oml_retire_event_type('invoice.exported') $$, true, false, 'operate'),
  ('oml_fold_check', 'select * from oml_fold_check()', false, true, 'audit'),
  ('oml_fold_check', $$ select * from oml_fold_check('globex') $$, false, true, null),
  ('oml_keys', 'select * from oml_keys()', true, true, 'audit or operate'),
  ('oml_end_impersonation', 'select oml_end_impersonation(gen_random_uuid())', true, false, 'operate'),
  ('oml_fork_check', 'select * from oml_fork_check()', true, true, 'audit or operate'),
  ('oml_gate_status', 'select * from oml_gate_status()', true, true, 'audit or operate'),
  ('gate_open', $$ select oml.gate_open('{}', '{}') $$, true, false, 'operate'),
  ('lake_lost', 'select * from oml.lake_lost(''{}'', ''{}'', ''{}'', ''{}'')', true, true, 'operate or audit'),
  ('lake_queued', $$ select oml.lake_queued('bronze.events', 0, 1) $$, true, true, 'operate or audit'),
  ('lease_take', 'select * from oml.lease_take(''lake'', ''me'', null, 30)', true, false, 'operate'),
  ('lease_release', 'select oml.lease_release(''lake'', ''me'', 1)', true, false, 'operate'),
  ('leases', 'select * from oml.leases()', true, true, 'operate or audit'),
  ('lake_dead_letters', 'select * from oml.lake_dead_letters()', true, true, 'operate or audit'),
  ('lake_bodies', 'select * from oml.lake_bodies(0, 1, 1)', true, true, 'operate or audit'),
  ('lake_body', 'select oml.lake_body(0, 0)', true, false, 'operate'),
  ('bodies_state', 'select * from oml.bodies_state()', true, true, 'operate or audit'),
  ('bodies_advance', 'select oml.bodies_advance(0)', true, false, 'operate'),
  ('lake_claims', 'select * from oml.lake_claims(0, 1)', true, true, 'operate or audit'),
  ('lake_attachments', 'select * from oml.lake_attachments(0, 1)', true, true, 'operate or audit'),
  ('accepted_losses', 'select * from oml.accepted_losses()', true, true, 'operate or audit'),
  ('lake_cut_limit', 'select oml.lake_cut_limit()', true, false, 'operate'),
  ('lake_cut_holders', 'select * from oml.lake_cut_holders()', true, true, 'operate or audit'),
  ('lake_fence', 'select oml.lake_fence(0)', true, false, 'operate'),
  ('lake_advance', 'select oml.lake_advance(1)', true, false, 'operate'),
  ('lake_record_table', $$ select oml.lake_record_table('bronze.events', 1, 'here') $$, true, false, 'operate'),
  ('lake_batch_end', 'select oml.lake_batch_end(0, 1, 1, 1)', true, true, 'operate or audit'),
  ('lake_batch', 'select * from oml.lake_batch(0, 1, 1, 1)', true, true, 'operate or audit'),
  ('lake_rows', $$ select * from oml.lake_rows('bronze.events', 0, 1) $$, true, true, 'operate or audit'),
  ('lake_state', 'select * from oml.lake_state()', true, true, 'operate or audit'),
  ('durability', 'select * from oml.durability()', true, true, 'operate or audit'),
  ('kek_faults', 'select * from oml.kek_faults()', true, true, 'operate or audit'),
  ('lake_outbox_row', 'select * from oml.lake_outbox_row(1)', true, true, 'operate or audit'),
  ('lake_tables', 'select * from oml.lake_tables()', true, true, 'operate or audit'),
  ('lake_unqueued', 'select * from oml.lake_unqueued()', true, true, 'operate or audit'),
  ('known_heads', 'select * from oml.known_heads()', true, true, 'audit or operate'),
  ('tlog_state', 'select * from oml.tlog_state()', true, true, 'operate or audit'),
  ('tlog_heads', 'select * from oml.tlog_heads()', true, true, 'operate or audit'),
  ('tlog_keys', 'select oml.tlog_keys()', true, true, 'operate or audit'),
  ('tlog_changes', 'select * from oml.tlog_changes(0, 1)', true, true, 'operate or audit'),
  ('tlog_entries', format('select * from oml.tlog_entries(%L, 0, 10)', :'globex'), true, true, 'operate or audit'),
  ('tlog_advance', 'select oml.tlog_advance(1)', true, false, 'operate'),
  ('tlog_record', :'recording', true, false, 'operate'),
  ('oml_verify_chain', $$ select * from oml_verify_chain('globex') $$, false, true, null),
  ('chain_rows', format('select * from oml.chain_rows(%L, 0, 10)', :'globex'), false, true, null);

select set_eq(
  $$ select distinct p.proname::text
     from pg_depend d
     join pg_extension e on e.oid = d.refobjid and e.extname = 'oml' and d.refclassid = 'pg_extension'::regclass
     join pg_proc p on p.oid = d.objid and d.classid = 'pg_proc'::regclass
     cross join unnest(array['oml_writer', 'oml_reviewer', 'oml_operator', 'oml_auditor', 'oml_daemon']) as role_name
     where d.deptype = 'e' and has_function_privilege(role_name, p.oid, 'execute') $$,
  $$ select name from verb union all select unnest(array['oml_append', 'oml_append_batch', 'oml_entity', 'oml_use', 'oml_impersonate', 'deployment_id', 'oml_adopt', 'lake_skip', 'oml_requeue', 'oml_gate_accept_loss', 'tlog_sign', 'oml_prove_inclusion',
       'lifecycle', 'oml_submit', 'oml_submit_sealed', 'oml_data_key', 'oml_my_submissions', 'oml_fetch', 'oml_workareas', 'oml_artifacts', 'oml_attachments', 'oml_history', 'oml_review_queue', 'oml_review_serve', 'oml_verdict', 'oml_create_workarea', 'oml_move_workarea', 'oml_add_member', 'oml_remove_member', 'oml_promote', 'oml_demote', 'oml_reassign', 'oml_end_simulation']) $$,
  'these are all the functions that a group role may call'
);

-- Without a group role nothing can be called, whatever the memberships say.
select oml_grant('nobody', 'provider', '{review,operate,audit}');
set session authorization nobody;
select throws_ok(call, '42501', null, format('outside the group roles %s cannot be called', name)) from verb;
reset session authorization;

-- Without a membership nothing goes through, whatever the group roles say. OM004.
create function pg_temp.lacks(verb, login text)
returns setof text
language sql
as $$
  select pg_temp.refused(
    $1.call, 'OM004',
    case when $1.lacks is null then format('login %I may not audit this tenant', login)
      else format('login %I lacks the permission %s on the provider', login, $1.lacks) end,
    case when $1.lacks is null then 'It needs the permission audit on the tenant or on the provider.'
      else format(
        'An operator grants it: select oml_grant(login => %L, tenant => ''provider'', permissions => ''{%s}'').',
        login, split_part($1.lacks, ' ', 1)
      ) end,
    format('%s is refused %s', login, $1.name)
  )
$$;
set session authorization stranger;
select pg_temp.lacks(verb, 'stranger') from verb;
reset session authorization;
set session authorization insider;
select pg_temp.lacks(verb, 'insider') from verb where lacks is not null;
reset session authorization;
set session authorization provider_reviewer;
select pg_temp.lacks(verb, 'provider_reviewer') from verb;
reset session authorization;
set session authorization provider_auditor;
select pg_temp.lacks(verb, 'provider_auditor') from verb where not audit;
reset session authorization;
set session authorization provider_operator;
select pg_temp.lacks(verb, 'provider_operator') from verb where not operate;
reset session authorization;

-- With it, it does.
savepoint before;
set session authorization provider_auditor;
select lives_ok(call, format('audit on the provider is enough for %s', name)) from verb where audit;
rollback to before;
set session authorization provider_operator;
select lives_ok(call, format('operate on the provider is enough for %s', name)) from verb where operate;
rollback to before;
select lives_ok(call, format('a superuser may call %s', name)) from verb;
rollback to before;

-- The auditor of a tenant sees that tenant and nobody else's.
set session authorization insider;
select ok((select ok from oml_verify_chain('globex')), 'audit on a tenant is enough to verify its chain');
select is((select count(*) from oml.chain_rows(:'globex', 0, 10)), 1::bigint, 'and to read it');
select pg_temp.refused(
  format('select * from oml_verify_chain(%L)', tenant), 'OM004', 'login insider may not audit this tenant',
  'It needs the permission audit on the tenant or on the provider.',
  format('the auditor of globex may not verify %s', coalesce(tenant, 'nothing'))
)
from unnest(array['initech', 'acme', 'provider', 'no-such-tenant', null]) as tenant;
select is(
  replace(pg_temp.refusal_of($$ select * from oml_verify_chain('initech') $$)::text, 'initech', 'no-such-tenant'),
  pg_temp.refusal_of($$ select * from oml_verify_chain('no-such-tenant') $$)::text,
  'an unknown tenant and another''s are refused alike'
);
select pg_temp.refused(
  format('select * from oml.chain_rows(%L, 0, 10)', chain), 'OM004', 'login insider may not audit this tenant',
  'It needs the permission audit on the tenant or on the provider.',
  'the auditor of globex may not read another chain'
)
from unnest(array[:'initech', :'deployment', '00000000-0000-0000-0000-000000000000', null]) as chain;
reset session authorization;
set session authorization provider_auditor;
select results_eq(
  $$ select name, ok from unnest(array['globex', 'initech', 'provider']) name, oml_verify_chain(name) $$,
  $$ values ('globex', true), ('initech', true), ('provider', true) $$,
  'audit on the provider is enough to verify every chain'
);
select pg_temp.refused(
  $$ select * from oml_verify_chain('no-such-tenant') $$, 'OM003', 'there is no tenant ''no-such-tenant''', '%',
  'who may audit every tenant is told which does not exist'
);
reset session authorization;

-- The provider chain takes the deployment's own events alone: what else is granted there opens no append.
set session authorization provider_reviewer;
select throws_ok(
  $$ select oml_append('invoice.exported', '{}', tenant => 'provider') $$, 'OM001', null,
  'a permission on the provider lets nobody append there'
);
reset session authorization;

-- Not granted to anyone: a superuser's.
set session authorization stranger;
select throws_ok(call, '42501', null, format('no group role may call %s', name))
from (values
  ('oml_genesis', $$ select oml_genesis('mine') $$),
  ('oml_configure', $$ select oml_configure('signer', 'file:/tmp/mine.key') $$),
  ('oml_rotate_signing_key', $$ select oml_rotate_signing_key('file:/tmp/mine.key') $$),
  ('oml_attach', 'select oml_attach()')
) v (name, call);
reset session authorization;

-- Names of one's own do not stand before the catalogue's.
set session authorization stranger;
create temporary table pg_roles as select session_user::name as rolname, true as rolsuper, true as rolcanlogin;
create function pg_temp.session_user_is() returns name language sql as $$ select 'postgres'::name $$;
select set_config('search_path', 'pg_temp, pg_catalog, public', true);
select pg_temp.lacks(verb, 'stranger') from verb where name in ('oml_create_tenant', 'oml_verify_chain');
reset search_path;
reset session authorization;

select * from finish();
rollback;
