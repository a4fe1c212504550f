-- The way out for a superuser, who could do anyway what these permissions on the provider allow.
create function oml.require_superuser(variadic permissions text[])
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if not (select r.rolsuper from pg_roles r where r.rolname = session_user) then
    raise exception using
      errcode = 'OM004',
      message = format('login %I lacks the permission %s on the provider', session_user, array_to_string(permissions, ' or ')),
      hint = format('An operator grants it: select oml_grant(login => %L, tenant => ''provider'', permissions => ''{%s}'').', session_user, permissions[1]);
  end if;
end
$$;
