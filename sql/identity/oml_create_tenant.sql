create function @extschema@.oml_create_tenant(name text)
returns uuid
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  tenant_id uuid := gen_random_uuid();
  created oml.receipt;
  kid bytea;
begin
  perform oml.require_operator();
  if name is null or name !~ '^[a-z0-9][a-z0-9._-]{0,62}$' then
    raise exception using
      errcode = 'OM005',
      message = format('%L is not a tenant name', name),
      hint = 'Use 1 to 63 lower-case letters, digits, dots, underscores and hyphens, the first a letter or digit.';
  end if;
  perform oml.require_gate(); -- before there is a chain without events, which its check would find
  kid := oml.lock_provider();
  begin
    perform oml.create_chain(tenant_id, name, nextval('oml.chain_no'), kid);
  exception when unique_violation then
    raise exception using
      errcode = 'OM006',
      message = format('tenant %L exists already', name),
      hint = 'Tenant names are unique for good.';
  end;
  created := oml.append_provider_event(
    'tenant.created', jsonb_build_object('tenant_id', tenant_id, 'name', name)
  );
  perform oml.append_own_event(
    tenant_id, 'tenant.genesis',
    jsonb_build_object('created_by', jsonb_build_object(
      'tenant_id', created.tenant_id, 'seq', created.seq,
      'event_id', created.event_id, 'hash', encode(created.hash, 'hex')
    )),
    (oml.operator()).principal, 'tenant.created', caused_by => created.event_id
  );
  return tenant_id;
end
$$;
comment on function @extschema@.oml_create_tenant(text)
  is 'Create a tenant: a tenant.created event on the provider chain and the tenant''s genesis event that refers to it. Needs operate on the provider.';
