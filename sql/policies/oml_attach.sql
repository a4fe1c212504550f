create function @extschema@.oml_attach()
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if to_regclass('oml.journal') is null then
    raise exception using
      errcode = 'OM021',
      message = 'there is no journal in this database to attach to',
      hint = 'Run genesis first: select oml_genesis(''name'').';
  end if;
  perform oml.attach();
end
$$;
comment on function @extschema@.oml_attach()
  is 'Bring guards, policies, grants and defaults back to the tables, for example after DROP EXTENSION CASCADE. Idempotent. Superuser only.';
