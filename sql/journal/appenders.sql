-- As whom, and in which tenants, the caller may append: by its memberships, or under its impersonation
-- session, which stands in their place.
create function oml.appenders(session_id uuid)
returns table (tenant_id uuid, tenant text, chain_no bigint, principal text, auth text, impersonation text)
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if session_id is null then
    return query
    select m.tenant_id, m.tenant, m.chain_no, m.principal, 'membership:append', null
    from oml.membership m
    where m.login = session_user and 'append' = any (m.permissions);
  else
    return query
    select i.tenant_id, i.tenant, i.chain_no, i.principal, 'impersonation:append',
      jsonb_build_object('session', session_id, 'by', i.by_principal, 'reason', i.reason)::text
    from oml.impersonated(session_id) i;
  end if;
end
$$;
