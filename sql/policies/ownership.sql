-- Who owns each function decides what its body may touch (architecture: Who may do what).
do $ownership$
declare
  member record;
  fleet constant text[] := array[
    'append_provider_event', 'create_chain', 'oml_create_tenant', 'oml_grant', 'oml_revoke', 'oml_register_event_type',
    'oml_retire_event_type', 'oml_fold_check', 'folded_admission', 'replayed_admission',
    'issue_key', 'oml_issue_key', 'oml_retire_key', 'oml_keys', 'lock_timeout_until', 'lock_chains', 'begin_rotation', 'lock_provider',
    'operator', 'impersonated', 'require_impersonable', 'oml_impersonate', 'oml_end_impersonation',
    'chain_page_end', 'chain_rows', 'known_heads', 'prove_chain', 'oml_verify_chain', 'lake_cut_limit', 'lake_cut_holders', 'lake_fence', 'lake_batch_end', 'lake_batch',
    'lake_rows', 'lake_state', 'lake_outbox_row', 'lake_advance', 'lake_tables', 'lake_record_table',
    'lake_unqueued', 'durability', 'kek_faults', 'tlog_state', 'tlog_heads', 'tlog_keys', 'tlog_changes', 'tlog_entries', 'tlog_advance', 'tlog_root', 'checkpoint_fault', 'tlog_record',
    'tlog_sign', 'prove_inclusion', 'oml_prove_inclusion',
    'this_instance', 'instance_json', 'gate_state', 'fork_faults', 'refuse_forked', 'refuse_closed', 'lock_instance', 'copy_settings', 'checked_alone', 'open_gate', 'open_gate_alone',
    'oml_fork_check', 'oml_gate_status', 'gate_open', 'require_reason', 'oml_adopt', 'read_losses', 'oml_gate_accept_loss',
    'lake_lost', 'lake_queued', 'accepted_losses', 'lake_skip', 'oml_requeue', 'lake_dead_letters', 'lake_claims', 'lake_attachments', 'lease_take', 'lease_release', 'leases', 'lake_bodies', 'was_released', 'lake_body', 'bodies_state', 'bodies_advance'
  ];
  owner constant text[] := array[
    'create_tables', 'attach', 'attach_grants', 'attach_policies', 'attach_guards', 'switch_guard_commit', 'oml_attach',
    'oml_genesis', 'register_reserved_types', 'oml_configure', 'oml_rotate_signing_key'
  ];
begin
  for member in
    select p.oid::regprocedure as signature, p.proname as name
    from pg_catalog.pg_depend d
    join pg_catalog.pg_extension e on e.oid = d.refobjid and e.extname = 'oml'
    join pg_catalog.pg_proc p on p.oid = d.objid
    where d.classid = 'pg_catalog.pg_proc'::regclass
      and d.refclassid = 'pg_catalog.pg_extension'::regclass
      and d.deptype = 'e'
  loop
    execute format('revoke all on function %s from public', member.signature);
    execute format('alter function %s owner to %I', member.signature, case
      when member.name = any (fleet) then 'oml_fleet'
      when member.name = any (owner) then 'oml_owner'
      else 'oml_kernel'
    end);
  end loop;
end
$ownership$;
