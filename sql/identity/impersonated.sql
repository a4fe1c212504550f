-- What an impersonation session allows now. Everything is looked up each time, so ending it, revoking
-- the impersonator's operate or the principal's memberships takes effect at the next statement.
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
  if not exists (
    select from oml.membership m
    where m.login = session_user and m.tenant = 'provider' and m.principal = by_principal
      and 'operate' = any (m.permissions)
  ) then
    perform oml.require_superuser('operate');
  end if;
  perform oml.require_impersonable(tenant, principal);
end
$$;
