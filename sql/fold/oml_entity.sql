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
  select m.tenant_id, count(*) over () as tenants into caller
  from oml.membership m
  where m.login = session_user
    and m.permissions && array['append', 'audit']
    and (oml_entity.tenant is null or m.tenant = oml_entity.tenant)
  limit 1;
  if not found and oml_entity.tenant is null then
    raise exception using
      errcode = 'OM001', message = format('login %I is bound to no tenant whose entities it may read', session_user),
      hint = 'It needs the permission append or audit on a tenant.';
  elsif not found then
    raise exception using
      errcode = 'OM003', message = format('there is no tenant %L whose entities login %I may read', oml_entity.tenant, session_user),
      hint = 'It needs the permission append or audit on the tenant.';
  elsif caller.tenants > 1 then
    raise exception using
      errcode = 'OM002', message = format('login %I is bound to several tenants and named none', session_user),
      hint = 'Say which: oml_entity(…, tenant => …).';
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
