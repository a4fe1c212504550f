-- Schema oml holds the tables too, which outlive the extension: so it is taken out of it.
-- It is owned by the installing superuser, so that a restore needs no role to exist beforehand.
do $schema$
begin
  if not exists (select from pg_catalog.pg_namespace n where n.nspname = 'oml') then
    create schema oml;
    alter extension oml drop schema oml;
  elsif exists (
    select from pg_catalog.pg_namespace n
    join pg_catalog.pg_roles r on r.oid = n.nspowner
    where n.nspname = 'oml' and not r.rolsuper
  ) then
    raise exception using
      errcode = 'OM070',
      message = 'schema oml exists and belongs to a role that is not a superuser',
      hint = 'Whoever owns the schema could put objects in our way. Drop it or alter its owner first.';
  end if;
end
$schema$;

grant usage, create on schema oml to oml_owner;
grant usage on schema oml to oml_kernel, oml_fleet;
comment on schema oml is 'OML: a signed, hash-chained journal per tenant. Tables outlive the extension.';
