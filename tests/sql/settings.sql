-- Settings of the deployment: few, checked, and the superuser's alone.
begin;
\ir shared/refused.sql
select plan(121);

-- OM022.
select pg_temp.refused(
  format('select oml_configure(%L, %L)', name, 'file:/x'), 'OM022', format('there is no setting %L to configure', name),
  'Settings are signer, lake_url, bodies_url, quarantine_url, tlog_url, fence_synchronous_commit, gate_evidence and profile.', format('%s cannot be configured', coalesce(name, 'nothing'))
)
from unnest(array['colour', 'SIGNER', '', null, 'deployment_id', 'deployment', 'signing_kid']) as name;

-- OM023.
select pg_temp.refused(
  format('select oml_configure(%L, %L)', name, value), 'OM023', format('%L is no value for %s', value, name),
  'signer: %lake_url: %fence_synchronous_commit: %gate_evidence: %profile: %', format('%s is no value for %s', coalesce(value, 'null'), name)
)
from (values
  ('signer', null), ('signer', ''), ('signer', 'file:relative.key'), ('signer', '/etc/oml/signing.key'), ('signer', 'vault:key'),
  ('signer', 'unix:omld.sock'), ('signer', 'unix:'), ('signer', 'UNIX:/run/oml/omld.sock'), ('signer', 'vault:/transit/oml'),
  ('lake_url', null), ('lake_url', '/srv/lake'), ('lake_url', 'file://host/lake'), ('lake_url', 'http://lake'),
  ('tlog_url', null), ('tlog_url', '/srv/tlog'), ('tlog_url', 'https://tlog'), ('bodies_url', 'https://bodies'), ('quarantine_url', '/srv/held'),
  ('fence_synchronous_commit', null), ('fence_synchronous_commit', 'off'), ('fence_synchronous_commit', 'ON'),
  ('gate_evidence', null), ('gate_evidence', 'none'), ('gate_evidence', 'Required'),
  ('profile', null), ('profile', ''), ('profile', 'Production'), ('profile', 'off')
) v (name, value);

-- A signer is asked whether it holds the key in force.
select throws_ok(format('select oml_configure(%L, %L)', 'signer', value), code, null, format('%s cannot be the signer', value))
from (values ('unix:/nowhere/omld.sock', 'OM090'), ('file:/nowhere/signing.key', 'OM030')) v (value, code);

savepoint before;
select lives_ok(format('select oml_configure(%L, %L)', name, value), format('%s may be %s', name, value))
from (values
  ('signer', (select s.value from oml.setting s where s.name = 'signer')), ('lake_url', 'file:///srv/lake'), ('lake_url', 's3://bucket/lake'), ('tlog_url', 's3://bucket/tlog'), ('bodies_url', 's3://bucket/bodies'), ('quarantine_url', 'file:///srv/held'),
  ('fence_synchronous_commit', 'local'), ('fence_synchronous_commit', 'remote_write'),
  ('fence_synchronous_commit', 'on'), ('fence_synchronous_commit', 'remote_apply')
) v (name, value);
select results_eq(
  $$ select name, value from oml.setting where name in ('lake_url', 'fence_synchronous_commit') order by name $$,
  $$ values ('fence_synchronous_commit', 'remote_apply'), ('lake_url', 's3://bucket/lake') $$,
  'a setting holds its latest value'
);

-- A parameter of the session is no setting.
rollback to before;
create role clerk login in role oml_writer;
select oml_create_tenant('globex') as globex \gset
select oml_grant('clerk', 'globex');
select oml_register_event_type('invoice.exported');
set session authorization clerk;
set oml.signer = 'file:/tmp/mine.key';
set oml.signing_kid = '\x0000000000000000';
set oml.deployment_id = '00000000-0000-0000-0000-000000000000';
set oml.lake_url = 'file:///tmp/mine';
select is((oml_append('invoice.exported', '{}')).seq, 2::bigint, 'a session may set what it likes under oml.');
reset session authorization;
select results_eq(
  format('select kid from oml.journal where tenant_id = %L and seq = 2', :'globex'),
  'select kid from oml.chain_head where chain_no = 0',
  'and the deployment''s key signs all the same'
);
select ok((select ok from oml_verify_chain('globex')), 'for the same deployment');

select * from finish();
rollback;
