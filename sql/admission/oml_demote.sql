create function @extschema@.oml_demote(
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
  return oml.decide('demote', artifact, reason, version, null, tenant, idempotency_key, operation, app_version);
end
$$;
comment on function @extschema@.oml_demote(uuid, text, bigint, text, text, text, text)
  is 'Withdraw a released version. The newest one if none is named. Needs operate on the tenant.';
