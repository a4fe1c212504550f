create function @extschema@.oml_grant(
  login name,
  tenant text,
  permissions text[] default '{append}',
  principal text default null
)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  bound record;
  known constant text[] := array['append', 'submit', 'review', 'operate', 'audit'];
begin
  perform oml.require_operator();
  select t.tenant_id, t.chain_no into bound from oml.tenant t where t.name = oml_grant.tenant;
  if not found then
    raise exception using
      errcode = 'OM003', message = format('there is no tenant %L', tenant),
      hint = 'Create it first: select oml_create_tenant(…).';
  end if;
  if not exists (select from pg_roles r where r.rolname = login and r.rolcanlogin) then
    raise exception using
      errcode = 'OM007', message = format('there is no login role %L', login),
      hint = format('Create it first: create role %s login in role oml_writer.', coalesce(quote_ident(login), '…'));
  end if;
  if permissions is null or cardinality(permissions) = 0 or not permissions <@ known then
    raise exception using
      errcode = 'OM008', message = format('%L are not permissions', permissions),
      hint = 'Any of append, submit, review, operate, audit.';
  end if;
  if tenant = 'provider' and permissions && array['append', 'submit'] then
    raise exception using
      errcode = 'OM008', message = 'the provider chain takes no events of applications',
      hint = 'It records the deployment''s own acts. Grant append and submit on another tenant.';
  end if;
  if octet_length(principal) not between 1 and 256 then
    raise exception using
      errcode = 'OM009', message = format('a principal of %s bytes', octet_length(principal)),
      hint = 'A principal has 1 to 256 bytes; leave it out to take the login''s name.';
  end if;
  insert into oml.membership as m (login, tenant_id, tenant, chain_no, principal, permissions)
  values (login, bound.tenant_id, tenant, bound.chain_no, coalesce(principal, login::text), permissions)
  on conflict on constraint membership_pkey
  do update set permissions = excluded.permissions, granted_at = clock_timestamp();
  perform oml.append_provider_event('membership.granted', jsonb_build_object(
    'login', login, 'tenant_id', bound.tenant_id, 'tenant', tenant,
    'principal', coalesce(principal, login::text), 'permissions', to_jsonb(permissions)
  ));
end
$$;
comment on function @extschema@.oml_grant(name, text, text[], text)
  is 'Let a login act in a tenant as one principal with exactly these permissions, journalled on the provider chain. Needs operate on the provider.';
