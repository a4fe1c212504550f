-- Genesis: once a database, by a superuser, and whole or not at all.
begin;
\ir shared/refused.sql
select plan(82);

select value as signer from oml.setting where name = 'signer' \gset

-- OM020: this database has had it.
select pg_temp.refused(
  $$ select oml_genesis('again') $$, 'OM020', 'this database has had its genesis', '%run oml_attach().',
  'a database has one genesis'
);
select pg_temp.refused(
  format('select oml_genesis(deployment => value, signer => %L) from oml.setting where name = ''deployment''', :'signer'),
  'OM020', 'this database has had its genesis', '%run oml_attach().', 'under the same name too'
);

-- From here on in an empty database, for the length of this transaction.
set client_min_messages = warning;
drop extension oml cascade;
drop schema oml cascade;
reset client_min_messages;
create extension oml;
select is_empty(
  $$ select relname from pg_class where relnamespace = 'oml'::regnamespace and relkind in ('r', 'S', 'v', 'i') $$,
  'the extension by itself makes no table'
);

create function pg_temp.no_genesis(statement text, sqlstate text, message text, hint text, description text)
returns setof text
language plpgsql
as $$
declare
  refusal pg_temp.refusal := pg_temp.refusal_of(statement);
begin
  return next is(refusal.sqlstate || ': ' || refusal.message, sqlstate || ': ' || message, description);
  return next alike(refusal.hint, hint, description || ', and the hint says what to do');
  return next is(
    (select count(*) from pg_class where relnamespace = 'oml'::regnamespace and relkind in ('r', 'S')), 0::bigint,
    description || ', and no table is made'
  );
end
$$;

-- OM021.
select pg_temp.no_genesis(
  statement, 'OM021', 'there is no journal in this database', '%oml_genesis(%', format('before its genesis nothing goes: %s', statement)
)
from unnest(array[
  'select oml_attach()', 'select oml_append(''invoice.exported'', ''{}'')', 'select oml_create_tenant(''globex'')',
  'select oml_verify_chain(''globex'')', 'select oml_configure(''lake_url'', ''file:///lake'')', 'select oml.lake_state()',
  'select oml.deployment_id()', 'select oml_register_event_type(''invoice.exported'')'
]) as statement;
-- OM005.
select pg_temp.no_genesis(
  format('select oml_genesis(%L, signer => %L)', name, :'signer'), 'OM005', format('%L is not a deployment name', name),
  'Use 1 to 63 lower-case letters, digits, dots, underscores and hyphens, the first a letter or digit.',
  format('%s is not a deployment name', coalesce(quote_literal(replace(name, E'\n', '\n')), 'null'))
)
from unnest(array[null, '', 'ACME', 'acme prod', '-acme', E'acme\n', repeat('a', 64)]) as name;
-- OM051.
select pg_temp.no_genesis(
  format(
    $$ do $do$ begin
         set local transaction_read_only = on;
         perform oml_genesis('acme', signer => %L);
       end $do$ $$, :'signer'
  ),
  'OM051', 'the transaction is read-only: nothing can be appended in it', 'Begin it READ WRITE%',
  'a read-only transaction has no genesis'
);
-- OM030, OM036, OM023: what it is given must be usable.
select pg_temp.no_genesis(
  $$ select oml_genesis('acme', signer => 'file:/no/such.key') $$, 'OM030', 'signing key /no/such.key does not exist',
  '%oml keys generate --out /no/such.key', 'without a signing key there is no genesis'
);
select pg_temp.no_genesis(
  $$ select oml_genesis('acme', signer => 'vault:key') $$, 'OM036', 'signer ''vault:key'' is not understood', 'Use file:%',
  'nor with a signer that is not understood'
);
select pg_temp.no_genesis(
  format('select oml_genesis(%L, signer => %L, lake_url => %L)', 'acme', :'signer', '/srv/lake'),
  'OM023', '''/srv/lake'' is no value for lake_url', '%lake_url: file:/// or s3:// and a place.%', 'nor with a lake that has no URL'
);

-- The genesis.
select oml_genesis('acme-prod', signer => :'signer', lake_url => 'file:///srv/lake', tlog_url => 'file:///srv/tlog') as deployment \gset
select results_eq(
  'select name, value from oml.setting order by name',
  format(
    $$ values ('deployment', 'acme-prod'), ('deployment_id', %L), ('lake_url', 'file:///srv/lake'), ('profile', 'local'),
      ('signer', %L), ('tlog_url', 'file:///srv/tlog') $$, :'deployment', :'signer'
  ),
  'the settings name the deployment, its lake, its logs, its profile and its signer'
);
select results_eq(
  'select tenant_id, name, chain_no from oml.tenant',
  format($$ values (%L::uuid, 'provider', 0::bigint) $$, :'deployment'),
  'the provider tenant is the deployment'
);
select results_eq(
  'select tenant_id, seq, type, schema_version, prev_hash, principal, "authorization", payload from oml.journal',
  format(
    $$ select %L::uuid, 1::bigint, 'key.issued', 1, decode(repeat('00', 32), 'hex'), session_user::text collate "default", 'superuser',
         jsonb_build_object(
           'kid', encode(substr(sha256(k), 1, 8), 'hex'), 'public_key', encode(k, 'hex'), 'algorithm', 'Ed25519',
           'purpose', 'root', 'deployment', 'acme-prod'
         )
       from oml.signer_public_key(%L) k $$, :'deployment', :'signer'
  ),
  'the first event of the provider chain issues the root key'
);
select results_eq(
  'select kid from oml.journal', 'select substr(sha256(decode(payload ->> ''public_key'', ''hex'')), 1, 8) from oml.journal',
  'which signs it'
);
select results_eq(
  'select kid from oml.chain_head', 'select kid from oml.journal', 'and is in force on that chain'
);
select results_eq(
  'select kid, purpose, issued_seq, retired_seq from oml.key', $$ select kid, 'root', 1::bigint, null::bigint from oml.journal $$,
  'the table of keys says the same'
);
select results_eq(
  'select name, seq, fenced_seq, (select count(*) from oml.outbox) from oml.frontier order by name',
  $$ values ('bodies', 0::bigint, 0::bigint, 1::bigint), ('lake', 0, 0, 1), ('tlog', 0, 0, 1) $$, 'bodies, lake and tlog start at nothing, and the event is queued for them'
);
select results_eq(
  'select type, reserved from oml.event_type order by type',
  $$ values ('artifact.demoted', true), ('artifact.promoted', true), ('artifact.reassigned', true), ('artifact.simulation-ended', true), ('database.adopted', true), ('event-type.registered', true), ('event-type.retired', true), ('impersonation.ended', true), ('impersonation.started', true),
       ('journal.loss-accepted', true), ('key.issued', true),
       ('key.retired', true), ('key.rotated', true), ('lake.materialize-skipped', true), ('lake.requeued', true), ('membership.granted', true),
       ('membership.revoked', true), ('review.serve', true), ('review.verdict', true), ('submission.attach', true), ('submission.submit', true),
       ('tenant.created', true), ('tenant.genesis', true), ('workarea.created', true), ('workarea.joined', true), ('workarea.left', true), ('workarea.moved', true) $$,
  'the catalogue holds the deployment''s own events and no other'
);
select is_empty('select * from oml.membership', 'nobody is bound to anything yet');
select results_eq(
  $$ select ok, events from oml_verify_chain('provider') $$, 'values (true, 1::bigint)', 'the provider chain verifies'
);
select pg_temp.refused(
  $$ select oml_genesis('again') $$, 'OM020', 'this database has had its genesis', '%run oml_attach().', 'and there is no second'
);

-- And the first steps after it.
create role clerk login in role oml_writer;
select lives_ok($$ select oml_create_tenant('globex') $$, 'a tenant is created');
select lives_ok($$ select oml_grant('clerk', 'globex') $$, 'a login bound');
select lives_ok($$ select oml_register_event_type('invoice.exported') $$, 'a type registered');
set session authorization clerk;
select is((oml_append('invoice.exported', '{}')).seq, 2::bigint, 'and an event appended');
reset session authorization;
select results_eq(
  $$ select ok, events from oml_verify_chain('globex') $$, 'values (true, 2::bigint)', 'whose chain verifies'
);

select * from finish();
rollback;
