-- As whom the caller acts in which tenant, by a membership with any of these permissions; and from here on
-- the kernel sees that tenant. And the deployment's signer, for whoever encrypts or decrypts. What oml_use asked
-- for in this transaction counts. An impersonation session appends events; submissions, verdicts and releases are
-- the principal's own.
create function oml.caller(
  tenant text, permissions text[], writes boolean, out tenant_id uuid, out principal text, out auth text, out signer text
)
returns record
language plpgsql
volatile
-- search_path: pinned by its callers
as $$
#variable_conflict use_column
declare
  acting_as text;
  callers bigint := 0;
  granted text[];
begin
  unlisten oml_restricted; -- fails inside maintenance that runs another's code: see oml_append
  if to_regclass('oml.journal') is null or current_setting('oml.transaction', true) <> ''
    or current_setting('oml.core_loaded', true) is distinct from 'on' or (writes and current_setting('transaction_read_only') = 'on')
  then
    perform oml.require_genesis();
    if writes then
      if current_setting('transaction_read_only')::bool then
        perform oml.refuse_read_only();
      end if;
      -- A fresh backend loads Python here, and not with its chain's lock held.
      perform oml.load_core(), set_config('oml.core_loaded', 'on', false);
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
  end if;
  for tenant_id, principal, granted, signer in
    select m.tenant_id, m.principal, m.permissions, (select s.value from oml.setting s where s.name = 'signer')
    from oml.membership m
    where m.login = session_user and m.tenant <> 'provider' and m.permissions && caller.permissions
      and (caller.tenant is null or m.tenant = caller.tenant) and (acting_as is null or m.principal = acting_as)
    limit 2
  loop
    callers := callers + 1;
  end loop;
  if callers <> 1 then
    perform oml.refuse_caller(caller.tenant, acting_as, permissions, in_a_tenant => true);
  end if;
  if cardinality(permissions) = 1 then
    auth := 'membership:' || permissions[1];
  else
    auth := 'membership:' || (select p from unnest(permissions) p where p = any (granted) limit 1);
  end if;
  perform set_config('oml.tenant_id', tenant_id::text, true);
end
$$;
