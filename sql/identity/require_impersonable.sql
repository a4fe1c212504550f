create function oml.require_impersonable(tenant text, principal text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (
    select from oml.membership m
    where m.tenant = require_impersonable.tenant and m.principal = require_impersonable.principal
      and m.login <> session_user and 'append' = any (m.permissions)
  ) then
    raise exception using
      errcode = 'OM132', message = format('there is no principal %L to impersonate in tenant %L', principal, tenant),
      hint = 'It must be the principal of another login that may append to the tenant.';
  end if;
end
$$;
