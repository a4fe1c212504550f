-- Who may do what to which object, in full. What is not named here is refused.
begin;
select plan(7);

-- Schemas.
select results_eq(
  $$ select a.grantee::regrole::text, string_agg(a.privilege_type, ',' order by a.privilege_type)
     from pg_namespace n, aclexplode(n.nspacl) a where n.nspname = 'oml' and a.grantee <> n.nspowner group by 1 order by 1 $$,
  $$ values ('oml_auditor', 'USAGE'), ('oml_daemon', 'USAGE'), ('oml_fleet', 'USAGE'), ('oml_kernel', 'USAGE'),
       ('oml_operator', 'USAGE'), ('oml_owner', 'CREATE,USAGE'), ('oml_reviewer', 'USAGE'), ('oml_writer', 'USAGE') $$,
  'schema oml: the roles may look in, oml_owner may make tables'
);

-- Tables and sequences, their owner aside.
select set_eq(
  $$ select c.relname::text, a.grantee::regrole::text, string_agg(a.privilege_type, ',' order by a.privilege_type)
     from pg_class c, aclexplode(c.relacl) a
     where c.relnamespace = 'oml'::regnamespace and a.grantee <> c.relowner group by 1, 2 $$,
  $$ values
    ('setting', 'oml_kernel', 'SELECT'), ('setting', 'oml_fleet', 'SELECT'),
    ('tenant', 'oml_fleet', 'INSERT,SELECT'),
    ('chain_head', 'oml_kernel', 'SELECT,UPDATE'), ('chain_head', 'oml_fleet', 'INSERT,SELECT'),
    ('key', 'oml_fleet', 'INSERT,SELECT'), ('impersonation', 'oml_fleet', 'INSERT,SELECT'),
    ('membership', 'oml_kernel', 'SELECT'), ('membership', 'oml_fleet', 'DELETE,INSERT,SELECT,UPDATE'),
    ('event_type', 'oml_kernel', 'SELECT'), ('event_type', 'oml_fleet', 'INSERT,SELECT'),
    ('journal', 'oml_kernel', 'INSERT,SELECT'), ('journal', 'oml_fleet', 'SELECT'),
    ('entity', 'oml_kernel', 'INSERT,SELECT,UPDATE'), ('entity', 'oml_fleet', 'SELECT'),
    ('outbox', 'oml_kernel', 'INSERT'), ('outbox', 'oml_fleet', 'SELECT'),
    ('frontier', 'oml_fleet', 'SELECT'),
    ('lake_table', 'oml_fleet', 'INSERT,SELECT'),
    ('gate', 'oml_kernel', 'SELECT'), ('gate', 'oml_fleet', 'INSERT,SELECT,UPDATE'), ('instance', 'oml_fleet', 'INSERT,SELECT,UPDATE'),
    ('accepted_loss', 'oml_fleet', 'INSERT,SELECT'), ('tlog', 'oml_fleet', 'INSERT,SELECT'), ('tlog_node', 'oml_fleet', 'INSERT,SELECT'),
    ('workarea', 'oml_kernel', 'INSERT,SELECT'), ('workarea_member', 'oml_kernel', 'INSERT,SELECT'), ('artifact_version', 'oml_kernel', 'INSERT,SELECT'), ('attachment', 'oml_kernel', 'INSERT,SELECT'), ('derived_from', 'oml_kernel', 'INSERT,SELECT'), ('served', 'oml_kernel', 'INSERT,SELECT'), ('artifact_event', 'oml_kernel', 'INSERT,SELECT'), ('dek', 'oml_kernel', 'INSERT,SELECT'), ('body', 'oml_kernel', 'INSERT,SELECT'), ('writer_envelope', 'oml_kernel', 'INSERT,SELECT'),
    ('workarea', 'oml_fleet', 'SELECT'), ('workarea_member', 'oml_fleet', 'SELECT'), ('artifact_version', 'oml_fleet', 'SELECT'), ('attachment', 'oml_fleet', 'SELECT'), ('derived_from', 'oml_fleet', 'SELECT'), ('served', 'oml_fleet', 'SELECT'), ('artifact_event', 'oml_fleet', 'SELECT'), ('dek', 'oml_fleet', 'SELECT'), ('body', 'oml_fleet', 'SELECT'), ('dead_letter', 'oml_fleet', 'INSERT,SELECT'), ('lease', 'oml_fleet', 'SELECT'), ('key', 'oml_kernel', 'SELECT'),
    ('outbox_seq', 'oml_kernel', 'USAGE'), ('outbox_seq', 'oml_fleet', 'SELECT,UPDATE'), ('chain_no', 'oml_fleet', 'SELECT,UPDATE,USAGE') $$,
  'tables and sequences: two owners of functions have what they need, PUBLIC and the group roles have nothing'
);
select set_eq(
  $$ select c.relname || '.' || t.attname, a.grantee::regrole::text, a.privilege_type
     from pg_class c join pg_attribute t on t.attrelid = c.oid, aclexplode(t.attacl) a
     where c.relnamespace = 'oml'::regnamespace $$,
  $$ values
    ('chain_head.kid', 'oml_fleet', 'UPDATE'),
    ('key.retired_seq', 'oml_fleet', 'UPDATE'), ('impersonation.ended_at', 'oml_fleet', 'UPDATE'), ('frontier.seq', 'oml_fleet', 'UPDATE'),
    ('frontier.advanced_at', 'oml_fleet', 'UPDATE'), ('frontier.fenced_seq', 'oml_fleet', 'UPDATE'),
    ('frontier.fenced_at', 'oml_fleet', 'UPDATE'), ('event_type.retired_at', 'oml_fleet', 'UPDATE'),
    ('lease.term', 'oml_fleet', 'UPDATE'), ('lease.holder', 'oml_fleet', 'UPDATE'), ('lease.backend_pid', 'oml_fleet', 'UPDATE'),
    ('lease.taken_at', 'oml_fleet', 'UPDATE'), ('lease.renewed_at', 'oml_fleet', 'UPDATE'), ('lease.expires_at', 'oml_fleet', 'UPDATE'),
    ('dead_letter.requeued_seq', 'oml_fleet', 'UPDATE'), ('dead_letter.requeued_at', 'oml_fleet', 'UPDATE'),
    ('tlog.generation', 'oml_fleet', 'UPDATE'), ('tlog.size', 'oml_fleet', 'UPDATE'), ('tlog.root', 'oml_fleet', 'UPDATE'),
    ('workarea.path', 'oml_kernel', 'UPDATE'), ('workarea.last_seq', 'oml_kernel', 'UPDATE'), ('workarea_member.is_member', 'oml_kernel', 'UPDATE'), ('workarea_member.last_seq', 'oml_kernel', 'UPDATE'), ('artifact_version.workarea_id', 'oml_kernel', 'UPDATE'), ('artifact_version.state', 'oml_kernel', 'UPDATE'), ('artifact_version.state_seq', 'oml_kernel', 'UPDATE'), ('artifact_version.reviewer', 'oml_kernel', 'UPDATE'), ('artifact_version.reason', 'oml_kernel', 'UPDATE'), ('served.served_seq', 'oml_kernel', 'UPDATE'),
    ('tlog.checkpoint', 'oml_fleet', 'UPDATE'), ('tlog.published_at', 'oml_fleet', 'UPDATE') $$,
  'columns: the key of a chain, the ends of keys, types and impersonations, the frontier, what settles a dead letter, a lease, what the rows of a log move on to, and where a submission stands'
);
select is_empty(
  $$ select c.relname from pg_class c, aclexplode(c.relacl) a
     where c.relnamespace = 'oml'::regnamespace and a.is_grantable and a.grantee <> c.relowner $$,
  'no privilege on them may be granted on'
);
select is_empty(
  $$ select defaclobjtype, defaclacl from pg_default_acl where defaclnamespace in (0, 'oml'::regnamespace)
       and defaclrole in ('oml_owner'::regrole, 'oml_kernel'::regrole, 'oml_fleet'::regrole) $$,
  'nothing is granted by default'
);

-- Policies.
select set_eq(
  $$ select tablename::text, roles::text, cmd, coalesce(qual, '-') as qual, coalesce(with_check, '-') as with_check
     from pg_policies where schemaname = 'oml' $$,
  format(
    $$ values
      ('setting', '{oml_owner}', 'ALL', 'true', 'true'), ('setting', '{oml_kernel}', 'SELECT', 'true', '-'),
      ('setting', '{oml_fleet}', 'SELECT', 'true', '-'),
      ('tenant', '{oml_owner}', 'INSERT', '-', 'true'), ('tenant', '{oml_fleet}', 'SELECT', 'true', '-'),
      ('tenant', '{oml_fleet}', 'INSERT', '-', 'true'),
      ('chain_head', '{oml_owner}', 'INSERT', '-', 'true'), ('chain_head', '{oml_fleet}', 'ALL', 'true', 'true'),
      ('key', '{oml_owner}', 'INSERT', '-', 'true'), ('key', '{oml_fleet}', 'ALL', 'true', 'true'),
      ('impersonation', '{oml_fleet}', 'ALL', 'true', 'true'),
      ('chain_head', '{oml_kernel}', 'SELECT', %1$L, '-'), ('chain_head', '{oml_kernel}', 'UPDATE', %1$L, 'false'),
      ('membership', '{oml_kernel}', 'SELECT', '(login = SESSION_USER)', '-'), ('membership', '{oml_fleet}', 'ALL', 'true', 'true'),
      ('event_type', '{oml_owner}', 'INSERT', '-', 'true'), ('event_type', '{oml_kernel}', 'SELECT', 'true', '-'),
      ('event_type', '{oml_fleet}', 'INSERT', '-', 'true'), ('event_type', '{oml_fleet}', 'SELECT', 'true', '-'),
      ('event_type', '{oml_fleet}', 'UPDATE', 'true', 'true'),
      ('entity', '{oml_kernel}', 'SELECT', %1$L, '-'), ('entity', '{oml_kernel}', 'INSERT', '-', %1$L),
      ('entity', '{oml_kernel}', 'UPDATE', %1$L, %1$L), ('entity', '{oml_fleet}', 'SELECT', 'true', '-'),
      ('journal', '{oml_kernel}', 'SELECT', %1$L, '-'), ('journal', '{oml_kernel}', 'INSERT', '-', %1$L),
      ('journal', '{oml_fleet}', 'SELECT', 'true', '-'),
      ('outbox', '{oml_kernel}', 'INSERT', '-', %1$L), ('outbox', '{oml_fleet}', 'SELECT', 'true', '-'),
      ('frontier', '{oml_owner}', 'INSERT', '-', 'true'), ('frontier', '{oml_fleet}', 'SELECT', 'true', '-'),
      ('frontier', '{oml_fleet}', 'UPDATE', 'true', 'true'),
      ('gate', '{oml_kernel}', 'SELECT', 'true', '-'), ('gate', '{oml_fleet}', 'ALL', 'true', 'true'),
      ('instance', '{oml_fleet}', 'ALL', 'true', 'true'),
      ('accepted_loss', '{oml_fleet}', 'SELECT', 'true', '-'), ('accepted_loss', '{oml_fleet}', 'INSERT', '-', 'true'),
      ('lake_table', '{oml_fleet}', 'SELECT', 'true', '-'), ('lake_table', '{oml_fleet}', 'INSERT', '-', 'true'),
      ('key', '{oml_kernel}', 'SELECT', %1$L, '-'),
      ('workarea', '{oml_kernel}', 'SELECT', %1$L, '-'), ('workarea', '{oml_kernel}', 'INSERT', '-', %1$L), ('workarea', '{oml_kernel}', 'UPDATE', %1$L, %1$L), ('workarea', '{oml_fleet}', 'SELECT', 'true', '-'),
      ('workarea_member', '{oml_kernel}', 'SELECT', %1$L, '-'), ('workarea_member', '{oml_kernel}', 'INSERT', '-', %1$L), ('workarea_member', '{oml_kernel}', 'UPDATE', %1$L, %1$L), ('workarea_member', '{oml_fleet}', 'SELECT', 'true', '-'),
      ('artifact_version', '{oml_kernel}', 'SELECT', %1$L, '-'), ('artifact_version', '{oml_kernel}', 'INSERT', '-', %1$L), ('artifact_version', '{oml_kernel}', 'UPDATE', %1$L, %1$L), ('artifact_version', '{oml_fleet}', 'SELECT', 'true', '-'),
      ('attachment', '{oml_kernel}', 'SELECT', %1$L, '-'), ('attachment', '{oml_kernel}', 'INSERT', '-', %1$L), ('attachment', '{oml_fleet}', 'SELECT', 'true', '-'),
      ('derived_from', '{oml_kernel}', 'SELECT', %1$L, '-'), ('derived_from', '{oml_kernel}', 'INSERT', '-', %1$L), ('derived_from', '{oml_fleet}', 'SELECT', 'true', '-'),
      ('served', '{oml_kernel}', 'SELECT', %1$L, '-'), ('served', '{oml_kernel}', 'INSERT', '-', %1$L), ('served', '{oml_kernel}', 'UPDATE', %1$L, %1$L), ('served', '{oml_fleet}', 'SELECT', 'true', '-'),
      ('artifact_event', '{oml_kernel}', 'SELECT', %1$L, '-'), ('artifact_event', '{oml_kernel}', 'INSERT', '-', %1$L), ('artifact_event', '{oml_fleet}', 'SELECT', 'true', '-'),
      ('dek', '{oml_kernel}', 'SELECT', %1$L, '-'), ('dek', '{oml_kernel}', 'INSERT', '-', %1$L), ('dek', '{oml_fleet}', 'SELECT', 'true', '-'), ('body', '{oml_fleet}', 'SELECT', 'true', '-'),
      ('lease', '{oml_owner}', 'INSERT', '-', 'true'), ('lease', '{oml_fleet}', 'SELECT', 'true', '-'), ('lease', '{oml_fleet}', 'UPDATE', 'true', 'true'),
      ('dead_letter', '{oml_fleet}', 'SELECT', 'true', '-'), ('dead_letter', '{oml_fleet}', 'INSERT', '-', 'true'), ('dead_letter', '{oml_fleet}', 'UPDATE', 'true', 'true'),
      ('body', '{oml_kernel}', 'SELECT', %1$L, '-'), ('body', '{oml_kernel}', 'INSERT', '-', %1$L),
      ('writer_envelope', '{oml_kernel}', 'SELECT', %1$L, '-'), ('writer_envelope', '{oml_kernel}', 'INSERT', '-', %1$L),
      ('tlog', '{oml_fleet}', 'INSERT', '-', 'true'), ('tlog', '{oml_fleet}', 'UPDATE', 'true', 'true'),
      ('tlog_node', '{oml_fleet}', 'INSERT', '-', 'true'),
      ('tlog', '{oml_fleet}', 'SELECT', 'true', '-'), ('tlog_node', '{oml_fleet}', 'SELECT', 'true', '-') $$,
    '(tenant_id = (NULLIF(current_setting(''oml.tenant_id''::text, true), ''''::text))::uuid)'
  ),
  'policies: oml_kernel keeps to one tenant, oml_fleet sees all, and nobody else has any'
);

-- Functions, their owner aside.
select set_eq(
  $$ select p.proname::text, a.grantee::regrole::text, a.privilege_type
     from pg_depend d
     join pg_extension e on e.oid = d.refobjid and e.extname = 'oml' and d.refclassid = 'pg_extension'::regclass
     join pg_proc p on p.oid = d.objid and d.classid = 'pg_proc'::regclass, aclexplode(p.proacl) a
     where d.deptype = 'e' and a.grantee <> p.proowner $$,
  $$ select name, grantee, 'EXECUTE' from (values
    ('oml_append', '{oml_writer}'::text[]), ('oml_append_batch', '{oml_writer}'), ('lock_chain', '{oml_fleet}'), ('oml_use', '{oml_writer,oml_reviewer,oml_operator,oml_auditor}'),
    ('oml_issue_key', '{oml_operator}'), ('oml_retire_key', '{oml_operator}'), ('oml_keys', '{oml_operator,oml_auditor}'),
    ('oml_impersonate', '{oml_operator}'), ('oml_end_impersonation', '{oml_operator}'), ('impersonated', '{oml_kernel}'),
    ('issue_key', '{oml_owner}'), ('begin_rotation', '{oml_owner}'), ('lock_provider', '{oml_owner}'), ('operator', '{oml_owner}'),
    ('require_superuser', '{oml_fleet}'), ('transaction_mark', '{oml_fleet}'), ('refuse_caller', '{oml_fleet}'), ('guard_columns', '{oml_owner}'), ('guard_set_once', '{oml_owner}'),
    ('oml_create_tenant', '{oml_operator}'), ('oml_grant', '{oml_operator}'), ('oml_revoke', '{oml_operator}'),
    ('oml_register_event_type', '{oml_operator}'), ('oml_retire_event_type', '{oml_operator}'),
    ('oml_entity', '{oml_writer,oml_auditor}'), ('oml_fold_check', '{oml_auditor,oml_daemon}'),
    ('known_targets', '{oml_fleet}'), ('schema_fault', '{oml_fleet}'),
    ('refuse_reserved', '{oml_fleet}'), ('refuse_unregistered', '{oml_fleet}'),
    ('oml_verify_chain', '{oml_auditor,oml_daemon}'), ('chain_rows', '{oml_auditor,oml_daemon}'),
    ('known_heads', '{oml_auditor,oml_daemon}'), ('deployment_id', '{oml_auditor,oml_daemon}'),
    ('lake_state', '{oml_auditor,oml_daemon}'), ('durability', '{oml_auditor,oml_daemon}'), ('kek_faults', '{oml_auditor,oml_daemon}'), ('kek_epoch', '{oml_fleet}'), ('open_parts', '{oml_fleet}'), ('lake_tables', '{oml_auditor,oml_daemon}'),
    ('lake_rows', '{oml_auditor,oml_daemon}'), ('lake_outbox_row', '{oml_auditor,oml_daemon}'),
    ('oml_fork_check', '{oml_operator,oml_auditor,oml_daemon}'), ('oml_gate_status', '{oml_operator,oml_auditor,oml_daemon}'),
    ('gate_open', '{oml_operator,oml_daemon}'), ('oml_adopt', '{oml_operator}'), ('oml_requeue', '{oml_operator}'), ('lease_take', '{oml_daemon}'), ('lease_release', '{oml_daemon}'), ('leases', '{oml_auditor,oml_daemon}'), ('guard_term', '{oml_owner}'), ('lake_bodies', '{oml_auditor,oml_daemon}'), ('bodies_state', '{oml_auditor,oml_daemon}'), ('lake_body', '{oml_daemon}'), ('bodies_advance', '{oml_daemon}'), ('lake_skip', '{oml_daemon}'), ('lake_dead_letters', '{oml_auditor,oml_daemon}'), ('lake_claims', '{oml_auditor,oml_daemon}'), ('lake_attachments', '{oml_auditor,oml_daemon}'), ('oml_gate_accept_loss', '{oml_operator}'),
    ('require_gate', '{oml_fleet}'), ('open_gate', '{oml_owner}'), ('open_gate_alone', '{oml_kernel}'),
    ('lake_lost', '{oml_auditor,oml_daemon}'), ('lake_queued', '{oml_auditor,oml_daemon}'), ('accepted_losses', '{oml_auditor,oml_daemon}'),
    ('lake_unqueued', '{oml_auditor,oml_daemon}'), ('lake_batch_end', '{oml_auditor,oml_daemon}'), ('lake_batch', '{oml_auditor,oml_daemon}'),
    ('lake_cut_limit', '{oml_daemon}'), ('lake_cut_holders', '{oml_auditor,oml_daemon}'), ('lake_fence', '{oml_daemon}'),
    ('lake_advance', '{oml_daemon}'), ('lake_record_table', '{oml_daemon}'),
    ('append_own_event', '{oml_fleet,oml_owner}'), ('load_core', '{oml_fleet,oml_owner}'),
    ('require_provider', '{oml_fleet}'), ('require_audit', '{oml_fleet}'), ('require_operator', '{oml_fleet}'), ('require_genesis', '{oml_fleet,oml_owner}'),
    ('append_provider_event', '{oml_owner}'), ('create_chain', '{oml_owner}'), ('signer_public_key', '{oml_owner}'),
    ('tlog_state', '{oml_auditor,oml_daemon}'), ('tlog_heads', '{oml_auditor,oml_daemon}'), ('tlog_keys', '{oml_auditor,oml_daemon}'),
    ('tlog_changes', '{oml_auditor,oml_daemon}'), ('tlog_entries', '{oml_auditor,oml_daemon}'), ('tlog_advance', '{oml_daemon}'),
    ('tlog_record', '{oml_daemon}'), ('guard_tlog', '{oml_owner}'),
    ('tlog_sign', '{oml_daemon}'), ('oml_prove_inclusion', '{oml_auditor,oml_daemon}'), ('seal_checkpoint', '{oml_fleet}'),
    ('oml_submit', '{oml_writer}'), ('oml_submit_sealed', '{oml_writer}'), ('oml_data_key', '{oml_writer}'),
    ('oml_my_submissions', '{oml_writer,oml_reviewer,oml_operator,oml_auditor}'), ('oml_fetch', '{oml_writer,oml_reviewer,oml_operator,oml_auditor}'), ('oml_workareas', '{oml_writer,oml_reviewer,oml_operator,oml_auditor}'), ('oml_artifacts', '{oml_writer,oml_reviewer,oml_operator,oml_auditor}'), ('oml_attachments', '{oml_writer,oml_reviewer,oml_operator,oml_auditor}'), ('oml_history', '{oml_writer,oml_reviewer,oml_operator,oml_auditor}'), ('lifecycle', '{oml_writer,oml_reviewer,oml_operator,oml_auditor,oml_fleet}'),
    ('oml_review_queue', '{oml_reviewer}'), ('oml_review_serve', '{oml_reviewer}'), ('oml_verdict', '{oml_reviewer}'),
    ('oml_create_workarea', '{oml_operator}'), ('oml_move_workarea', '{oml_operator}'), ('oml_add_member', '{oml_operator}'), ('oml_remove_member', '{oml_operator}'), ('oml_promote', '{oml_operator}'), ('oml_demote', '{oml_operator}'), ('oml_reassign', '{oml_operator}'), ('oml_end_simulation', '{oml_operator}'),
    ('read_signer', '{oml_owner}'), ('refuse_signing', '{oml_fleet,oml_owner}'), ('refuse_read_only', '{oml_fleet,oml_owner}'),
    ('draw_outbox_seq', '{oml_owner}'), ('queue_again', '{oml_fleet}'), ('derive', '{oml_owner}'), ('copy_settings', '{oml_owner}'),
    ('guard_commit', '{oml_owner}'), ('require_quorum', '{oml_owner}'),
    ('guard_set_once', '{oml_owner}'), ('guard_entity', '{oml_owner}'),
    ('guard_append_only', '{oml_owner}'), ('guard_forward', '{oml_owner}')
  ) f (name, grantees), unnest(grantees) grantee $$,
  'functions: each group role calls its verbs, the owners call each other where they must'
);

select * from finish();
rollback;
