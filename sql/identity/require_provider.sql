-- Deployment-wide acts need a permission on the provider tenant; group roles alone grant nothing,
-- since they are cluster-wide.
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
  ) then
    perform oml.require_superuser(variadic permissions);
  end if;
end
$$;
