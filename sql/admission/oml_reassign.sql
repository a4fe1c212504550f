create function @extschema@.oml_reassign(
  artifact uuid,
  workarea text,
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
  return oml.decide('reassign', artifact, reason, version, coalesce(workarea, ''), tenant, idempotency_key, operation, app_version);
end
$$;
comment on function @extschema@.oml_reassign(uuid, text, text, bigint, text, text, text, text)
  is 'Move a released version to another workarea, whose members may read it from then on. The path it was submitted under stays in its history. Needs operate on the tenant.';
