-- An operator's verb, not a tenant's: it is journalled on the provider chain, which it so locks.
create function @extschema@.oml_impersonate(
  tenant text,
  principal text,
  reason text,
  duration interval default '1 hour'
)
returns uuid
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  session_id uuid := gen_random_uuid();
  tenant_id uuid;
  by_principal text;
  started_at timestamptz := clock_timestamp();
begin
  perform oml.require_operator();
  by_principal := (oml.operator()).principal;
  perform oml.require_impersonable(tenant, principal);
  if octet_length(btrim(reason)) is null or octet_length(btrim(reason)) not between 1 and 512 then
    raise exception using
      errcode = 'OM134', message = 'an impersonation needs a reason of 1 to 512 bytes',
      hint = 'It is signed into every event made under it: a ticket number, for example.';
  elsif duration is null or duration <= interval '0' or duration > interval '24 hours' then
    raise exception using
      errcode = 'OM134', message = format('an impersonation of %s', coalesce(duration::text, 'no duration')),
      hint = 'It lasts up to 24 hours; begin another one then.';
  end if;
  select t.tenant_id into tenant_id from oml.tenant t where t.name = oml_impersonate.tenant;
  insert into oml.impersonation (session_id, login, by_principal, tenant_id, tenant, principal, reason, started_at, expires_at)
  values (session_id, session_user, by_principal, tenant_id, tenant, principal, btrim(reason), started_at, started_at + duration);
  perform oml.append_provider_event('impersonation.started', jsonb_build_object(
    'session_id', session_id, 'login', session_user, 'by_principal', by_principal, 'tenant_id', tenant_id,
    'tenant', tenant, 'principal', principal, 'reason', btrim(reason), 'expires_at', started_at + duration
  ));
  return session_id;
end
$$;
comment on function @extschema@.oml_impersonate(text, text, text, interval)
  is 'Begin an impersonation session, journalled on the provider chain, and return its id for oml_use(impersonation => …). Needs operate on the provider.';
