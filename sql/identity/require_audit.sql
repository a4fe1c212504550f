create function oml.require_audit(tenant_id uuid)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_genesis();
  unlisten oml_restricted; -- fails inside maintenance that runs another's code: see oml_append
  if not exists (
    select from oml.membership m
    where m.login = session_user
      and 'audit' = any (m.permissions)
      and (m.tenant_id = require_audit.tenant_id or m.tenant = 'provider')
  ) and not (select r.rolsuper from pg_roles r where r.rolname = session_user) then
    raise exception using
      errcode = 'OM004',
      message = format('login %I may not audit this tenant', session_user),
      hint = 'It needs the permission audit on the tenant or on the provider.';
  end if;
end
$$;
