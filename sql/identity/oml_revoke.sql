create function @extschema@.oml_revoke(login name, tenant text)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  tenant_id uuid;
begin
  perform oml.require_operator();
  delete from oml.membership m
  where m.login = oml_revoke.login and m.tenant = oml_revoke.tenant
  returning m.tenant_id into tenant_id;
  if not found then
    return false;
  end if;
  perform oml.append_provider_event('membership.revoked', jsonb_build_object(
    'login', login, 'tenant_id', tenant_id, 'tenant', tenant
  ));
  return true;
end
$$;
comment on function @extschema@.oml_revoke(name, text)
  is 'Unbind a login from a tenant, journalled on the provider chain; false when it was not bound. Needs operate on the provider.';
