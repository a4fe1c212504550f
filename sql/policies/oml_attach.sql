create function @extschema@.oml_attach()
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_genesis();
  perform oml.attach();
end
$$;
comment on function @extschema@.oml_attach()
  is 'Bring guards, policies, grants and defaults back to the tables, for example after DROP EXTENSION CASCADE. Idempotent. Superuser only.';
