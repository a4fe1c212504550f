-- Nothing is stored: the wrapped key comes back with the submission. A tenant's first locks its chain. The result is not logged by any setting.
create function @extschema@.oml_data_key(artifact uuid default null, tenant text default null)
returns table (
  tenant_id uuid, artifact_id uuid, version bigint, dek_id uuid, dek bytea, wrapped_dek bytea, kek_epoch int
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  actor record;
  made record;
begin
  actor := oml.caller(oml_data_key.tenant, '{submit}', false);
  tenant_id := actor.tenant_id;
  artifact_id := coalesce(artifact, gen_random_uuid());
  version := 1;
  if artifact is not null then
    version := oml.next_version(actor.tenant_id, artifact, actor.principal);
    if version = 1 then
      perform oml.refuse_artifact(artifact);
    end if;
  end if;
  kek_epoch := oml.kek_epoch(actor.tenant_id);
  made := oml.make_data_key(
    actor.signer, uuid_send(actor.tenant_id), uuid_send(artifact_id), kek_epoch, not oml.kek_in_use(actor.tenant_id, kek_epoch)
  );
  if made.refusal is not null then
    perform oml.refuse_signing(made.refusal);
  end if;
  dek_id := made.dek_id;
  dek := made.dek;
  wrapped_dek := made.wrapped;
  return next;
end
$$;
comment on function @extschema@.oml_data_key(uuid, text)
  is 'A fresh data key for a submission that the client encrypts: of a new artifact, or of the next version of the caller''s own. Needs submit on the tenant.';
