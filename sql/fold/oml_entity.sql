create function @extschema@.oml_entity(entity_type text, entity_id text, tenant text default null)
returns table (
  last_seq bigint, last_event_id uuid, last_type text, event_count bigint, first_at timestamptz, last_at timestamptz, state jsonb
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  caller record;
begin
  unlisten oml_restricted; -- fails inside maintenance that runs another's code: see oml_append
  perform oml.require_genesis();
  if current_setting('oml.transaction', true) = oml.transaction_mark() then
    tenant := coalesce(tenant, nullif(current_setting('oml.tenant', true), ''));
  end if;
  select m.tenant_id, count(*) over () as tenants into caller
  from oml.membership m
  where m.login = session_user
    and m.permissions && array['append', 'audit']
    and (oml_entity.tenant is null or m.tenant = oml_entity.tenant)
  group by m.tenant_id
  limit 1;
  if not found or caller.tenants > 1 then
    perform oml.refuse_caller(tenant, null, '{append,audit}');
  end if;
  perform set_config('oml.tenant_id', caller.tenant_id::text, true);
  return query
  select e.last_seq, e.last_event_id, e.last_type, e.event_count, e.first_at, e.last_at, e.state
  from oml.entity e
  where e.tenant_id = caller.tenant_id and e.entity_type = oml_entity.entity_type and e.entity_id = oml_entity.entity_id;
end
$$;
comment on function @extschema@.oml_entity(text, text, text)
  is 'What the caller''s tenant knows of an entity: last event, count, times and state; no row if no event names it. Needs append or audit on the tenant.';
