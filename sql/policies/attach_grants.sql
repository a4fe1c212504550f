-- What each owner may do to each table, and nobody else anything. The kernel's UPDATE of chain_head is there
-- for SELECT … FOR UPDATE alone: its policy lets no update through. On whole tables, because each column of
-- its own would be looked up at each append.
create function oml.attach_grants()
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  stray record;
begin
  for stray in
    select distinct c.relname, c.relkind, coalesce(quote_ident(r.rolname), 'public') as grantee
    from pg_class c
    cross join lateral (
      select e.grantee from aclexplode(c.relacl) e
      union
      select e.grantee from pg_attribute t cross join lateral aclexplode(t.attacl) e where t.attrelid = c.oid
    ) a
    left join pg_roles r on r.oid = a.grantee
    where c.relnamespace = 'oml'::regnamespace and a.grantee <> c.relowner
  loop
    execute format(
      'revoke all on %s oml.%I from %s cascade',
      case stray.relkind when 'S' then 'sequence' else 'table' end, stray.relname, stray.grantee
    );
  end loop;

  grant select on oml.setting, oml.membership, oml.event_type, oml.gate to oml_kernel;
  grant select, insert on oml.journal to oml_kernel;
  grant select, update on oml.chain_head to oml_kernel;
  grant insert on oml.outbox to oml_kernel;
  grant select, insert, update on oml.entity to oml_kernel;
  grant select, insert on oml.attachment, oml.derived_from, oml.artifact_event, oml.dek, oml.body, oml.writer_envelope to oml_kernel;
  grant select, insert, update (path, last_seq) on oml.workarea to oml_kernel;
  grant select, insert, update (is_member, last_seq) on oml.workarea_member to oml_kernel;
  grant select, insert, update (workarea_id, state, state_seq, reviewer, reason) on oml.artifact_version to oml_kernel;
  grant select, insert, update (served_seq) on oml.served to oml_kernel;
  grant select on oml.key to oml_kernel;
  grant usage on sequence oml.outbox_seq to oml_kernel;

  grant select on oml.setting, oml.journal, oml.outbox, oml.entity, oml.tlog, oml.tlog_node to oml_fleet;
  grant select on oml.workarea, oml.workarea_member, oml.artifact_version, oml.attachment, oml.derived_from, oml.served, oml.artifact_event, oml.dek, oml.body to oml_fleet;
  grant select, insert on oml.tenant, oml.lake_table to oml_fleet;
  grant select, insert, update (retired_at) on oml.event_type to oml_fleet;
  grant select, insert, update (kid) on oml.chain_head to oml_fleet;
  grant select, insert, update (retired_seq) on oml.key to oml_fleet;
  grant select, insert, update (ended_at) on oml.impersonation to oml_fleet;
  grant select, insert, update, delete on oml.membership to oml_fleet;
  grant select, update (seq, advanced_at, fenced_seq, fenced_at) on oml.frontier to oml_fleet;
  grant select, insert, update on oml.gate, oml.instance to oml_fleet;
  grant select, insert on oml.accepted_loss to oml_fleet;
  grant select, insert, update (requeued_seq, requeued_at) on oml.dead_letter to oml_fleet;
  grant select, update (term, holder, backend_pid, taken_at, renewed_at, expires_at) on oml.lease to oml_fleet;
  grant insert, update (generation, size, root, checkpoint, published_at) on oml.tlog to oml_fleet;
  grant insert on oml.tlog_node to oml_fleet;
  grant usage on sequence oml.chain_no to oml_fleet;
  grant select, update on sequence oml.chain_no, oml.outbox_seq to oml_fleet;
end
$$;
