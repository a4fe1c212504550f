create function @extschema@.oml_end_simulation(
  artifact uuid,
  reason text default null,
  version bigint default null,
  tenant text default null,
  idempotency_key text default null,
  operation text default null,
  app_version text default null
)
returns oml.receipt
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return oml.decide('end-simulation', artifact, reason, version, null, tenant, idempotency_key, operation, app_version);
end
$$;
comment on function @extschema@.oml_end_simulation(uuid, text, bigint, text, text, text, text)
  is 'End what a simulation made: a simulated version is withdrawn, or will not be released. The newest one if none is named. Needs operate on the tenant.';
