-- Row-level security on every table, forced on the owner too. oml_kernel sees one tenant, the one the
-- calling function has just checked and set; oml_fleet sees all, in the few functions that must.
create function oml.attach_policies()
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  this_tenant constant text := 'tenant_id = nullif(current_setting(''oml.tenant_id'', true), '''')::uuid';
  policy record;
begin
  -- What is not declared here is not ours and may open what we close.
  for policy in
    select p.polname as name, c.relname as table_name
    from pg_policy p join pg_class c on c.oid = p.polrelid
    where c.relnamespace = 'oml'::regnamespace
  loop
    execute format('drop policy %I on oml.%I', policy.name, policy.table_name);
  end loop;
  for policy in
    select * from (values
      ('setting', 'owner_all', 'all', 'oml_owner', 'true'),
      ('setting', 'kernel_read', 'select', 'oml_kernel', 'true'),
      ('setting', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('tenant', 'owner_insert', 'insert', 'oml_owner', 'true'),
      ('tenant', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('tenant', 'fleet_insert', 'insert', 'oml_fleet', 'true'),
      ('chain_head', 'owner_insert', 'insert', 'oml_owner', 'true'),
      ('chain_head', 'kernel_read', 'select', 'oml_kernel', this_tenant),
      ('chain_head', 'kernel_lock', 'lock', 'oml_kernel', this_tenant),
      ('chain_head', 'fleet_all', 'all', 'oml_fleet', 'true'),
      ('key', 'owner_insert', 'insert', 'oml_owner', 'true'),
      ('key', 'fleet_all', 'all', 'oml_fleet', 'true'),
      ('impersonation', 'fleet_all', 'all', 'oml_fleet', 'true'),
      ('membership', 'kernel_read', 'select', 'oml_kernel', 'login = session_user'),
      ('membership', 'fleet_all', 'all', 'oml_fleet', 'true'),
      ('event_type', 'owner_insert', 'insert', 'oml_owner', 'true'),
      ('event_type', 'kernel_read', 'select', 'oml_kernel', 'true'),
      ('event_type', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('event_type', 'fleet_insert', 'insert', 'oml_fleet', 'true'),
      ('event_type', 'fleet_retire', 'update', 'oml_fleet', 'true'),
      ('journal', 'kernel_read', 'select', 'oml_kernel', this_tenant),
      ('journal', 'kernel_insert', 'insert', 'oml_kernel', this_tenant),
      ('journal', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('outbox', 'kernel_insert', 'insert', 'oml_kernel', this_tenant),
      ('outbox', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('entity', 'kernel_read', 'select', 'oml_kernel', this_tenant),
      ('entity', 'kernel_insert', 'insert', 'oml_kernel', this_tenant),
      ('entity', 'kernel_update', 'update', 'oml_kernel', this_tenant),
      ('entity', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('frontier', 'owner_insert', 'insert', 'oml_owner', 'true'),
      ('frontier', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('frontier', 'fleet_update', 'update', 'oml_fleet', 'true'),
      ('lake_table', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('lake_table', 'fleet_insert', 'insert', 'oml_fleet', 'true'),
      ('gate', 'kernel_read', 'select', 'oml_kernel', 'true'),
      ('gate', 'fleet_all', 'all', 'oml_fleet', 'true'),
      ('instance', 'fleet_all', 'all', 'oml_fleet', 'true'),
      ('lease', 'owner_insert', 'insert', 'oml_owner', 'true'),
      ('lease', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('lease', 'fleet_update', 'update', 'oml_fleet', 'true'),
      ('dead_letter', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('dead_letter', 'fleet_insert', 'insert', 'oml_fleet', 'true'),
      ('dead_letter', 'fleet_update', 'update', 'oml_fleet', 'true'),
      ('accepted_loss', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('accepted_loss', 'fleet_insert', 'insert', 'oml_fleet', 'true'),
      ('tlog', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('tlog', 'fleet_insert', 'insert', 'oml_fleet', 'true'),
      ('tlog', 'fleet_update', 'update', 'oml_fleet', 'true'),
      ('tlog_node', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('tlog_node', 'fleet_insert', 'insert', 'oml_fleet', 'true'),
      ('workarea', 'kernel_read', 'select', 'oml_kernel', this_tenant),
      ('workarea', 'kernel_insert', 'insert', 'oml_kernel', this_tenant),
      ('workarea', 'kernel_update', 'update', 'oml_kernel', this_tenant),
      ('workarea', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('workarea_member', 'kernel_read', 'select', 'oml_kernel', this_tenant),
      ('workarea_member', 'kernel_insert', 'insert', 'oml_kernel', this_tenant),
      ('workarea_member', 'kernel_update', 'update', 'oml_kernel', this_tenant),
      ('workarea_member', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('artifact_version', 'kernel_read', 'select', 'oml_kernel', this_tenant),
      ('artifact_version', 'kernel_insert', 'insert', 'oml_kernel', this_tenant),
      ('artifact_version', 'kernel_update', 'update', 'oml_kernel', this_tenant),
      ('artifact_version', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('attachment', 'kernel_read', 'select', 'oml_kernel', this_tenant),
      ('attachment', 'kernel_insert', 'insert', 'oml_kernel', this_tenant),
      ('attachment', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('derived_from', 'kernel_read', 'select', 'oml_kernel', this_tenant),
      ('derived_from', 'kernel_insert', 'insert', 'oml_kernel', this_tenant),
      ('derived_from', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('served', 'kernel_read', 'select', 'oml_kernel', this_tenant),
      ('served', 'kernel_insert', 'insert', 'oml_kernel', this_tenant),
      ('served', 'kernel_update', 'update', 'oml_kernel', this_tenant),
      ('served', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('artifact_event', 'kernel_read', 'select', 'oml_kernel', this_tenant),
      ('artifact_event', 'kernel_insert', 'insert', 'oml_kernel', this_tenant),
      ('artifact_event', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('dek', 'kernel_read', 'select', 'oml_kernel', this_tenant),
      ('dek', 'kernel_insert', 'insert', 'oml_kernel', this_tenant),
      ('dek', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('body', 'kernel_read', 'select', 'oml_kernel', this_tenant),
      ('body', 'kernel_insert', 'insert', 'oml_kernel', this_tenant),
      ('body', 'fleet_read', 'select', 'oml_fleet', 'true'),
      ('writer_envelope', 'kernel_read', 'select', 'oml_kernel', this_tenant),
      ('writer_envelope', 'kernel_insert', 'insert', 'oml_kernel', this_tenant),
      ('key', 'kernel_read', 'select', 'oml_kernel', this_tenant)
    ) as p (table_name, name, command, role_name, condition)
  loop
    execute format(
      'create policy %I on oml.%I for %s to %I %s',
      policy.name, policy.table_name, replace(policy.command, 'lock', 'update'), policy.role_name,
      case policy.command
        when 'lock' then format('using (%s) with check (false)', policy.condition)
        when 'insert' then format('with check (%s)', policy.condition)
        when 'select' then format('using (%s)', policy.condition)
        else format('using (%1$s) with check (%1$s)', policy.condition)
      end
    );
  end loop;
end
$$;
