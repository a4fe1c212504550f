create function @extschema@.oml_revoke(login name, tenant text, principal text default null)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  gone record;
  revoked boolean := false;
begin
  perform oml.require_operator();
  for gone in
    delete from oml.membership m
    where m.login = oml_revoke.login and m.tenant = oml_revoke.tenant
      and m.principal = coalesce(oml_revoke.principal, m.principal)
    returning m.tenant_id, m.principal
  loop
    perform oml.append_provider_event('membership.revoked', jsonb_build_object(
      'login', login, 'tenant_id', gone.tenant_id, 'tenant', tenant, 'principal', gone.principal
    ));
    revoked := true;
  end loop;
  return revoked;
end
$$;
comment on function @extschema@.oml_revoke(name, text, text)
  is 'Unbind a login from a tenant, as one principal or as all, journalled on the provider chain; false when it was not bound. Needs operate on the provider.';
