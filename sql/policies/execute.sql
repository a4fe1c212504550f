-- Who may call what. Group roles grant EXECUTE; oml.membership decides what the call may do.
-- Functions absent here are for their owner alone, or for a superuser.
grant usage on schema oml to oml_writer, oml_reviewer, oml_operator, oml_auditor, oml_daemon;

grant execute on function
  @extschema@.oml_append(text, jsonb, text, text, text, text, uuid, text, text, text, text, int),
  @extschema@.oml_append_batch(jsonb)
to oml_writer;
grant execute on function @extschema@.oml_entity(text, text, text) to oml_writer, oml_auditor;
grant execute on function @extschema@.oml_use(text, text, uuid) to oml_writer, oml_reviewer, oml_operator, oml_auditor;
grant execute on function
  @extschema@.oml_submit(text, bytea, text, text, text, uuid, text[], text[], text[], bytea[], text, text, text, uuid, text, text),
  @extschema@.oml_submit_sealed(text, uuid, bigint, uuid, bytea, int, bytea, bytea, bytea, text, text, text, text[], text[], text[], bytea[], bytea[], bytea[], bytea, text, text, text, uuid, text, text),
  @extschema@.oml_data_key(uuid, text)
to oml_writer;
grant execute on function
  @extschema@.oml_my_submissions(uuid, text, bigint, int), @extschema@.oml_fetch(uuid, bigint, text, text), @extschema@.oml_history(uuid, text, bigint, int),
  @extschema@.oml_workareas(text), @extschema@.oml_artifacts(text, text, text, bigint, int), @extschema@.oml_attachments(uuid, bigint, text)
to oml_writer, oml_reviewer, oml_operator, oml_auditor;
grant execute on function
  @extschema@.oml_review_queue(text, bigint, int), @extschema@.oml_review_serve(uuid, bigint, text),
  @extschema@.oml_verdict(uuid, text, text, bigint, text, jsonb, boolean, text, text, text)
to oml_reviewer;
grant execute on function
  @extschema@.oml_create_workarea(text, text), @extschema@.oml_move_workarea(text, text, text),
  @extschema@.oml_add_member(text, text, text), @extschema@.oml_remove_member(text, text, text),
  @extschema@.oml_promote(uuid, text, bigint, text, text, text, text), @extschema@.oml_demote(uuid, text, bigint, text, text, text, text),
  @extschema@.oml_reassign(uuid, text, text, bigint, text, text, text, text), @extschema@.oml_end_simulation(uuid, text, bigint, text, text, text, text)
to oml_operator;
grant execute on function oml.lifecycle() to oml_writer, oml_reviewer, oml_operator, oml_auditor;
-- A function that takes a body keeps its statement out of the log when it fails: see oml_submit.
grant set on parameter log_min_error_statement to oml_kernel;
grant execute on function
  @extschema@.oml_create_tenant(text),
  @extschema@.oml_grant(name, text, text[], text),
  @extschema@.oml_revoke(name, text, text),
  @extschema@.oml_issue_key(bytea, text, text, text), @extschema@.oml_retire_key(text),
  @extschema@.oml_impersonate(text, text, text, interval), @extschema@.oml_end_impersonation(uuid),
  @extschema@.oml_register_event_type(text, int, jsonb, text[], text, text[], text[], int, text),
  @extschema@.oml_retire_event_type(text, int),
  @extschema@.oml_requeue(bigint, text),
  @extschema@.oml_adopt(text), @extschema@.oml_gate_accept_loss(text, jsonb, bigint)
to oml_operator;
grant execute on function
  @extschema@.oml_gate_status(), @extschema@.oml_fork_check()
to oml_operator, oml_auditor, oml_daemon;
grant execute on function oml.gate_open(jsonb, jsonb) to oml_operator, oml_daemon;
grant execute on function @extschema@.oml_keys() to oml_operator, oml_auditor;
grant execute on function
  @extschema@.oml_verify_chain(text), @extschema@.oml_fold_check(text), @extschema@.oml_prove_inclusion(uuid),
  oml.chain_rows(uuid, bigint, int),
  oml.known_heads(),
  oml.lake_state(), oml.lake_tables(), oml.lake_rows(text, bigint, bigint),
  oml.lake_outbox_row(bigint), oml.lake_batch_end(bigint, bigint, int, bigint), oml.lake_batch(bigint, bigint, int, bigint), oml.lake_unqueued(),
  oml.lake_cut_holders(bigint[]), oml.durability(), oml.kek_faults(),
  oml.lake_lost(bigint[], uuid[], bigint[], bytea[]), oml.lake_queued(text, bigint, bigint), oml.accepted_losses(), oml.lake_dead_letters(), oml.lake_claims(bigint, bigint), oml.lake_attachments(bigint, bigint), oml.leases(), oml.lake_bodies(bigint, bigint, int), oml.bodies_state(),
  oml.tlog_state(), oml.tlog_heads(), oml.tlog_keys(), oml.tlog_changes(bigint, bigint), oml.tlog_entries(uuid, bigint, int),
  oml.deployment_id()
to oml_auditor, oml_daemon;
grant execute on function
  oml.lake_cut_limit(), oml.lake_fence(bigint),
  oml.lake_advance(bigint), oml.lake_skip(bigint, text, int), oml.lake_body(bigint, int), oml.bodies_advance(bigint), oml.lease_take(text, text, bigint, double precision), oml.lease_release(text, text, bigint),
  oml.lake_record_table(text, int, text),
  oml.tlog_sign(uuid, int, bigint, bytea), oml.tlog_advance(bigint),
  oml.tlog_record(uuid, int, bigint, bytea, text)
to oml_daemon;

-- Between the three owners.
grant execute on function
  oml.append_own_event(uuid, text, jsonb, text, text, uuid),
  oml.require_genesis(), oml.require_provider(text[]), oml.require_operator(), oml.require_superuser(text[]), oml.require_audit(uuid), oml.refuse_read_only(), oml.load_core(text[], text), oml.lock_chain(uuid),
  oml.transaction_mark(), oml.require_gate(), oml.refuse_caller(text, text, text[], uuid, boolean),
  oml.known_targets(), oml.queue_again(uuid, bigint, text), oml.schema_fault(text), oml.refuse_reserved(text), oml.refuse_unregistered(text, int),
  oml.seal_checkpoint(text, bytea, bytea, uuid, uuid, int, bigint, bytea), oml.refuse_signing(text[]), oml.lifecycle(),
  oml.kek_epoch(uuid), oml.open_parts(text, bytea, bytea, bigint, int, bytea, bytea, int[], bytea[], bytea[])
to oml_fleet;
grant execute on function oml.impersonated(uuid), oml.open_gate_alone() to oml_kernel;
grant execute on function
  oml.append_provider_event(text, jsonb, uuid), oml.create_chain(uuid, text, bigint, bytea),
  oml.issue_key(bytea, text, jsonb, uuid, text, text), oml.begin_rotation(bytea), oml.lock_provider(), oml.operator(), oml.open_gate(jsonb)
to oml_owner;
grant execute on function oml.append_own_event(uuid, text, jsonb, text, text, uuid),
  oml.signer_public_key(text, bytea), oml.read_signer(text, bytea), oml.refuse_signing(text[]), oml.load_core(text[], text), oml.refuse_read_only(), oml.require_genesis(),
  oml.draw_outbox_seq(), oml.guard_append_only(), oml.guard_forward(), oml.guard_term(), oml.guard_columns(), oml.guard_set_once(), oml.guard_entity(), oml.guard_tlog(),
  oml.guard_commit(), oml.require_quorum(), oml.derive(), oml.copy_settings()
to oml_owner;
grant usage on schema @extschema@ to oml_owner;

-- Tables that outlived an earlier DROP EXTENSION get back what it took from them, in this very transaction.
-- Not by oml.attach(): a script may not meet tables that are no members, and pg_dump omits what it grants.
do $attach$
begin
  if pg_catalog.to_regclass('oml.journal') is not null then
    lock table oml.membership in access exclusive mode;
    alter table oml.outbox alter column seq set default oml.draw_outbox_seq();
    perform oml.attach_guards();
  end if;
end
$attach$;
