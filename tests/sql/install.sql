-- CREATE EXTENSION refuses a cluster in which somebody stands ready to act as OML. OM070.
begin;
set local client_min_messages = warning;
\ir shared/refused.sql
select plan(104);

create role somebody login;
drop extension oml cascade;
savepoint before;

create function pg_temp.installs_not(preparation text, message text, hint text, description text)
returns setof text
language plpgsql
as $$
declare
  refusal pg_temp.refusal := pg_temp.refusal_of(preparation || '; create extension oml');
begin
  return next is(refusal.sqlstate || ': ' || refusal.message, 'OM070: ' || message, description);
  return next alike(refusal.hint, hint, description || ', and the hint says what to do');
  return next is(
    (select count(*) from pg_extension where extname = 'oml'), 0::bigint, description || ', and nothing is installed'
  );
end
$$;

select pg_temp.installs_not(
  format('alter role %I %s', role_name, power), format('role %s already exists with powers it must not have', role_name),
  'It must be NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOREPLICATION.', format('a role %s with %s is refused', role_name, power)
)
from unnest(array['oml_owner', 'oml_kernel', 'oml_fleet', 'oml_writer', 'oml_daemon']) role_name
cross join unnest(array['login', 'superuser', 'bypassrls', 'createrole', 'replication']) power;
select pg_temp.installs_not(
  format('grant %I to somebody', role_name), 'oml_owner, oml_kernel or oml_fleet takes part in a role membership',
  'Revoke it: these three roles have no members and are members of nothing.', format('a member of %s is refused', role_name)
)
from unnest(array['oml_owner', 'oml_kernel', 'oml_fleet']) role_name;
select pg_temp.installs_not(
  format('grant somebody to %I', role_name), 'oml_owner, oml_kernel or oml_fleet takes part in a role membership',
  'Revoke it: these three roles have no members and are members of nothing.', format('%s as a member is refused', role_name)
)
from unnest(array['oml_owner', 'oml_kernel', 'oml_fleet']) role_name;
select pg_temp.installs_not(
  'alter schema oml owner to somebody', 'schema oml exists and belongs to a role that is not a superuser',
  '%Drop it or alter its owner first.', 'another''s schema oml is refused'
);

-- Functions of OML's names that were there before do not end up as OML's.
select throws_ok(
  'create function public.oml_append(type text, payload jsonb, tenant text, idempotency_key text, operation text, app_version text,
     caused_by uuid, invocation_id text, entity_type text, entity_id text, subject_id text, schema_version int)
   returns int language sql as ''select 1''; create extension oml',
  '42723', null, 'a function that already bears a public name is not replaced'
);

-- Elsewhere than in public.
create schema ledger;
create extension oml schema ledger;
select set_eq(
  $$ select proname::text from pg_proc where pronamespace = 'ledger'::regnamespace $$,
  $$ values ('oml_append'), ('oml_append_batch'), ('oml_verify_chain'), ('oml_create_tenant'), ('oml_grant'), ('oml_revoke'), ('oml_register_event_type'),
       ('oml_genesis'), ('oml_configure'), ('oml_attach'), ('oml_use'), ('oml_impersonate'), ('oml_end_impersonation'),
       ('oml_retire_event_type'), ('oml_fold_check'), ('oml_entity'), ('oml_issue_key'), ('oml_retire_key'), ('oml_keys'), ('oml_rotate_signing_key'),
       ('oml_fork_check'), ('oml_gate_status'), ('oml_gate_accept_loss'), ('oml_adopt'), ('oml_requeue'), ('oml_prove_inclusion'),
       ('oml_submit'), ('oml_submit_sealed'), ('oml_data_key'), ('oml_my_submissions'), ('oml_fetch'), ('oml_workareas'), ('oml_artifacts'), ('oml_attachments'), ('oml_history'), ('oml_review_queue'), ('oml_review_serve'), ('oml_verdict'), ('oml_create_workarea'), ('oml_move_workarea'), ('oml_add_member'), ('oml_remove_member'), ('oml_promote'), ('oml_demote'), ('oml_reassign'), ('oml_end_simulation') $$,
  'the public functions go into the schema named at CREATE EXTENSION'
);
select is((select count(*) from pg_proc where pronamespace = 'public'::regnamespace and proname ~ '^oml_'), 0::bigint, 'and nowhere else');
grant usage on schema ledger to public;
create role clerk login in role oml_writer;
select lives_ok(
  $$ select ledger.oml_create_tenant('globex'), ledger.oml_grant('clerk', 'globex'), ledger.oml_register_event_type('invoice.exported') $$,
  'where the deployment goes on'
);
set session authorization clerk;
select is((ledger.oml_append('invoice.exported', '{}')).seq, 2::bigint, 'and events are appended');
reset session authorization;
select ok((select ok from ledger.oml_verify_chain('globex')), 'which verify');
select lives_ok($$ select ledger.oml_attach() $$, 'and attached');
rollback to before;

-- A second installation while the tables stand finds them.
create extension oml;
select lives_ok($$ select oml_create_tenant('globex') $$, 'installed again in public, the deployment goes on there');

select * from finish();
rollback;
