-- An unknown tenant and somebody else's tenant get one answer: two would tell who our customers are.
create function oml.refuse_caller(tenant text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  names text;
begin
  select string_agg(m.tenant, ', ' order by m.tenant) into names
  from oml.membership m
  where m.login = session_user and 'append' = any (m.permissions);
  if names is null then
    raise exception using
      errcode = 'OM001',
      message = format('login %I is bound to no tenant it may append to', session_user),
      hint = 'An operator binds it: select oml_grant(login => …, tenant => …, permissions => ''{append}'').';
  elsif tenant is null then
    raise exception using
      errcode = 'OM002',
      message = format('login %I is bound to several tenants and named none', session_user),
      hint = format('Say which: oml_append(…, tenant => …). It may be one of: %s.', names);
  end if;
  raise exception using
    errcode = 'OM003',
    message = format('there is no tenant %L that login %I may append to', tenant, session_user),
    hint = format('This login may append to: %s.', names);
end
$$;
