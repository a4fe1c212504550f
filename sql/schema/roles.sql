-- Roles are cluster-wide: made once, and refused when somebody gave them powers they must not have.
do $roles$
declare
  role_name text;
begin
  foreach role_name in array array[
    'oml_owner', 'oml_kernel', 'oml_fleet',
    'oml_writer', 'oml_reviewer', 'oml_operator', 'oml_auditor', 'oml_daemon'
  ] loop
    if not exists (select from pg_catalog.pg_roles r where r.rolname = role_name) then
      execute format('create role %I nologin nosuperuser nobypassrls nocreaterole nocreatedb', role_name);
    end if;
    if exists (
      select from pg_catalog.pg_roles r
      where r.rolname = role_name
        and (r.rolcanlogin or r.rolsuper or r.rolbypassrls or r.rolcreaterole or r.rolreplication)
    ) then
      raise exception using
        errcode = 'OM070',
        message = format('role %s already exists with powers it must not have', role_name),
        hint = 'It must be NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOREPLICATION.';
    end if;
  end loop;
  -- The owners stand alone: whoever is their member could act as them.
  if exists (
    select from pg_catalog.pg_auth_members m
    join pg_catalog.pg_roles r on r.oid in (m.roleid, m.member)
    where r.rolname in ('oml_owner', 'oml_kernel', 'oml_fleet')
  ) then
    raise exception using
      errcode = 'OM070',
      message = 'oml_owner, oml_kernel or oml_fleet takes part in a role membership',
      hint = 'Revoke it: these three roles have no members and are members of nothing.';
  end if;
end
$roles$;
