-- What a transaction asked for holds for that transaction alone: the settings say which one made them,
-- so what a plain SET leaves behind for the next client of a pooled connection is not looked at. They
-- are requests and no proof: each use checks them against the memberships of session_user.
create function @extschema@.oml_use(
  tenant text default null,
  principal text default null,
  impersonation uuid default null
)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  under record;
begin
  unlisten oml_restricted; -- fails inside maintenance that runs another's code: see oml_append
  perform oml.require_genesis();
  if pg_is_in_recovery() then
    perform oml.refuse_read_only();
  end if;
  if impersonation is not null then
    select * into under from oml.impersonated(impersonation) i;
    if under.tenant <> coalesce(tenant, under.tenant) or under.principal <> coalesce(principal, under.principal) then
      perform oml.refuse_caller(tenant, principal, null, impersonation);
    end if;
    tenant := under.tenant;
    principal := under.principal;
  elsif not exists (
    select from oml.membership m
    where m.login = session_user
      and m.tenant = coalesce(oml_use.tenant, m.tenant)
      and m.principal = coalesce(oml_use.principal, m.principal)
  ) then
    perform oml.refuse_caller(tenant, principal, null);
  end if;
  -- The next xid can be guessed, and its microsecond not.
  perform set_config(
    'oml.transaction', pg_current_xact_id()::text || ' ' || extract(epoch from transaction_timestamp()), true
  );
  perform set_config('oml.tenant', coalesce(tenant, ''), true);
  perform set_config('oml.principal', coalesce(principal, ''), true);
  perform set_config('oml.impersonation', coalesce(impersonation::text, ''), true);
end
$$;
comment on function @extschema@.oml_use(text, text, uuid)
  is 'Choose tenant, principal or an impersonation session for the rest of this transaction, and for it alone.';
