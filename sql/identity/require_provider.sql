-- Deployment-wide acts need a permission on the provider tenant; group roles alone grant nothing,
-- since they are cluster-wide. A superuser may: it could do so anyway.
create function oml.require_provider(variadic permissions text[])
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_genesis();
  unlisten oml_restricted; -- fails inside maintenance that runs another's code: see oml_append
  if not exists (
    select from oml.membership m
    where m.login = session_user and m.tenant = 'provider' and m.permissions && require_provider.permissions
  ) and not (select r.rolsuper from pg_roles r where r.rolname = session_user) then
    raise exception using
      errcode = 'OM004',
      message = format('login %I lacks the permission %s on the provider', session_user, array_to_string(permissions, ' or ')),
      hint = format('An operator grants it: select oml_grant(login => %L, tenant => ''provider'', permissions => ''{%s}'').', session_user, permissions[1]);
  end if;
end
$$;
