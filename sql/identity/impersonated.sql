-- What an impersonation session allows now. Everything is looked up each time, so ending it, revoking
-- the login's operate or the principal's memberships takes effect at the next event.
create function oml.impersonated(
  session_id uuid,
  out tenant_id uuid, out tenant text, out chain_no bigint, out principal text, out by_principal text, out reason text
)
returns record
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  expires_at timestamptz;
  ended_at timestamptz;
begin
  select i.tenant_id, i.tenant, t.chain_no, i.principal, i.by_principal, i.reason, i.expires_at, i.ended_at
  into tenant_id, tenant, chain_no, principal, by_principal, reason, expires_at, ended_at
  from oml.impersonation i join oml.tenant t on t.tenant_id = i.tenant_id
  where i.session_id = impersonated.session_id and i.login = session_user;
  if not found then
    raise exception using
      errcode = 'OM130', message = format('login %I has no impersonation session %s', session_user, session_id),
      hint = 'Begin one: select oml_impersonate(tenant => …, principal => …, reason => …).';
  elsif ended_at is not null or expires_at <= clock_timestamp() then
    raise exception using
      errcode = 'OM131', message = format('impersonation %s has ended', session_id),
      hint = 'Begin a new one: select oml_impersonate(tenant => …, principal => …, reason => …).';
  end if;
  perform oml.require_impersonator(tenant, principal);
end
$$;

create function oml.require_impersonator(tenant text, principal text)
returns text
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  by_principal text;
begin
  select m.principal into by_principal
  from oml.membership m
  where m.login = session_user and 'operate' = any (m.permissions) and m.tenant in (require_impersonator.tenant, 'provider')
  order by m.tenant = 'provider', m.principal
  limit 1;
  if not found then
    raise exception using
      errcode = 'OM004', message = format('login %I lacks the permission operate on tenant %L', session_user, tenant),
      hint = 'Impersonation needs operate on the tenant or on the provider.';
  elsif not exists (
    select from oml.membership m
    where m.tenant = require_impersonator.tenant and m.principal = require_impersonator.principal
      and m.login <> session_user and 'append' = any (m.permissions)
  ) then
    raise exception using
      errcode = 'OM132', message = format('there is no principal %L to impersonate in tenant %L', principal, tenant),
      hint = 'It must be the principal of another login that may append to the tenant.';
  end if;
  return by_principal;
end
$$;
