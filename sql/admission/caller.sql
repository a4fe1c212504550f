-- As whom the caller acts in which tenant, by a membership with any of these permissions; and from here on
-- the kernel sees that tenant. What oml_use asked for in this transaction counts. An impersonation session
-- appends events; submissions, verdicts and releases are the principal's own.
create function oml.caller(
  tenant text, permissions text[], writes boolean, out tenant_id uuid, out principal text, out auth text
)
returns record
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  acting_as text;
  callers bigint;
  granted text[];
begin
  unlisten oml_restricted; -- fails inside maintenance that runs another's code: see oml_append
  perform oml.require_genesis();
  if writes and current_setting('transaction_read_only')::bool then
    perform oml.refuse_read_only();
  end if;
  if current_setting('oml.transaction', true) = oml.transaction_mark() then
    if current_setting('oml.impersonation', true) <> '' then
      raise exception using
        errcode = 'OM215', message = 'an impersonation session takes no part in submissions and reviews',
        hint = 'It appends events only. Let the principal itself submit, review and read.';
    end if;
    tenant := coalesce(caller.tenant, nullif(current_setting('oml.tenant', true), ''));
    acting_as := nullif(current_setting('oml.principal', true), '');
  end if;
  select m.tenant_id, m.principal, m.permissions, count(*) over ()
  into tenant_id, principal, granted, callers
  from oml.membership m
  where m.login = session_user and m.tenant <> 'provider' and m.permissions && caller.permissions
    and (caller.tenant is null or m.tenant = caller.tenant) and (acting_as is null or m.principal = acting_as)
  limit 1;
  if callers is distinct from 1 then
    perform oml.refuse_caller(caller.tenant, acting_as, permissions);
  end if;
  auth := 'membership:' || (select p from unnest(permissions) p where p = any (granted) limit 1);
  perform set_config('oml.tenant_id', tenant_id::text, true);
end
$$;
