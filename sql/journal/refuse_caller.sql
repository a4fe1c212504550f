-- Says why a caller has no membership, or no single one, that fits what it asked for: tenant, principal
-- and permissions (any of them is enough) may each be null, for any. An unknown tenant and somebody else's tenant get one answer:
-- two would tell who our customers are. What is done in a tenant's name alone leaves the provider aside.
create function oml.refuse_caller(tenant text, principal text, permissions text[], impersonation uuid default null, in_a_tenant boolean default false)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  may text := case when permissions = '{append}' then 'append to' else 'use' end;
  needed text := coalesce(array_to_string(permissions, ' or '), 'any permission');
  tenants text[];
  principals text[];
begin
  if impersonation is not null then
    raise exception using
      errcode = 'OM133',
      message = format('impersonation %s is not of that tenant and principal', impersonation),
      hint = 'Leave tenant and principal out: the session says both.';
  end if;
  select array_agg(distinct m.tenant order by m.tenant),
    array_agg(distinct m.principal order by m.principal)
      filter (where m.tenant = coalesce(refuse_caller.tenant, m.tenant))
  into tenants, principals
  from oml.membership m
  where m.login = session_user
    and (refuse_caller.permissions is null or m.permissions && refuse_caller.permissions)
    and not (in_a_tenant and m.tenant = 'provider');
  if tenants is null then
    raise exception using
      errcode = 'OM001',
      message = format('login %I is bound to no tenant it may %s', session_user, may),
      hint = format('It needs %s on one. An operator binds it: select oml_grant(login => …, tenant => …, permissions => …), which replaces what it has there.', needed);
  elsif principals is null then
    raise exception using
      errcode = 'OM003',
      message = format('there is no tenant %L that login %I may %s', tenant, session_user, may),
      hint = format('This login may %s: %s.', may, array_to_string(tenants, ', '));
  elsif principal is not null and principal <> all (principals) then
    raise exception using
      errcode = 'OM135',
      message = format('login %I may not act as principal %L', session_user, principal),
      hint = format('It may act as: %s.', array_to_string(principals, ', '));
  elsif tenant is null and cardinality(tenants) > 1 then
    raise exception using
      errcode = 'OM002',
      message = format('login %I is bound to several tenants and named none', session_user),
      hint = format('Say which: select oml_use(…), or the argument tenant => …. It may be one of: %s.', array_to_string(tenants, ', '));
  end if;
  raise exception using
    errcode = 'OM136',
    message = format('login %I may act as several principals and named none', session_user),
    hint = format('Say as whom, in the same transaction: select oml_use(principal => …). It may be one of: %s.', array_to_string(principals, ', '));
end
$$;
