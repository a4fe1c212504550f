-- Opens the gate for this instance; whoever calls has checked it. The sequences first: in a copy of a
-- database, and after a crash, they can stand below what is in use (CREATE DATABASE copies them without
-- their WAL's reserve). Nobody draws numbers while the gate is closed.
create function oml.open_gate(evidence jsonb)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  this record := oml.this_instance();
  used bigint;
begin
  select max(o.seq) into used from oml.outbox o;
  if used > (select s.last_value from oml.outbox_seq s) then
    perform setval('oml.outbox_seq', used);
  end if;
  select max(t.chain_no) into used from oml.tenant t;
  if used > (select s.last_value from oml.chain_no s) then
    perform setval('oml.chain_no', used);
  end if;

  insert into oml.gate as g (system_identifier, database_oid, journal_oid, timeline, postmaster_start, opened_at, opened_by, evidence,
    signer, deployment_id, profile)
  values (
    this.system_identifier, this.database_oid, this.journal_oid, this.timeline, this.postmaster_start, clock_timestamp(),
    session_user, open_gate.evidence, (select s.value from oml.setting s where s.name = 'signer'),
    (select s.value from oml.setting s where s.name = 'deployment_id')::uuid, (select s.value from oml.setting s where s.name = 'profile')
  )
  on conflict on constraint gate_pkey do update set
    system_identifier = excluded.system_identifier, database_oid = excluded.database_oid, journal_oid = excluded.journal_oid,
    timeline = excluded.timeline, postmaster_start = excluded.postmaster_start, opened_at = excluded.opened_at,
    opened_by = excluded.opened_by, evidence = excluded.evidence, signer = excluded.signer,
    deployment_id = excluded.deployment_id, profile = excluded.profile;
  insert into oml.instance as i (system_identifier, database_oid, journal_oid, timeline, opened_at)
  values (this.system_identifier, this.database_oid, this.journal_oid, this.timeline, clock_timestamp())
  on conflict on constraint instance_pkey do update set
    system_identifier = excluded.system_identifier, database_oid = excluded.database_oid, journal_oid = excluded.journal_oid,
    timeline = excluded.timeline, opened_at = excluded.opened_at;
end
$$;
