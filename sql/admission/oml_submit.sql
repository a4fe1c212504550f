-- The body is encrypted here, in memory, before anything of it is written. Nothing that fails in here logs
-- its statement, which may hold the body as text; what else would is the server's settings (oml doctor). Nor is
-- more of the contents than is allowed ever in a set of rows: beyond work_mem PostgreSQL writes that to a file.
create function @extschema@.oml_submit(
  workarea text,
  body bytea,
  media_type text,
  provenance text,
  tenant text default null,
  artifact uuid default null,
  derived_from text[] default '{}',
  attachment_names text[] default '{}',
  attachment_types text[] default '{}',
  attachments bytea[] default '{}',
  idempotency_key text default null,
  operation text default null,
  app_version text default null,
  caused_by uuid default null,
  invocation_id text default null,
  subject_id text default null
)
returns oml.submission_receipt
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set log_min_error_statement = panic
set work_mem = '64MB'
as $$
declare
  actor record;
  given oml.submission;
  sealed oml.sealed_parts;
  contents bytea[] := array[body] || attachments;
  content bytea;
  lengths bigint[] := '{}';
begin
  actor := oml.caller(tenant, '{submit}', true);
  perform oml.require_claims(workarea, idempotency_key, operation, app_version, invocation_id, subject_id);
  given.media_types := array[media_type] || attachment_types;
  given.names := array[''] || attachment_names;
  foreach content in array contents loop
    lengths := lengths || octet_length(content)::bigint;
  end loop;
  given.bytes := lengths;
  perform oml.require_content(provenance, given.media_types, given.names, given.bytes, derived_from);
  given.workarea := workarea;
  given.artifact_id := coalesce(artifact, gen_random_uuid());
  given.version := case when artifact is null then 1 else oml.next_version(actor.tenant_id, artifact, actor.principal) end;
  if artifact is not null and given.version = 1 then
    perform oml.refuse_artifact(artifact);
  end if;
  given.provenance := provenance;
  given.derived_from := coalesce(derived_from, '{}');
  given.kek_epoch := oml.kek_epoch(actor.tenant_id);
  sealed := oml.seal_parts(
    (select s.value from oml.setting s where s.name = 'signer'), uuid_send(actor.tenant_id), uuid_send(given.artifact_id),
    given.version, given.kek_epoch, contents, given.media_types
  );
  if sealed.refusal is not null then
    perform oml.refuse_signing(sealed.refusal);
  end if;
  given.plaintext_digests := sealed.plaintext_digests;
  given.ciphertexts := sealed.ciphertexts;
  given.ciphertext_digests := sealed.ciphertext_digests;
  given.dek_id := sealed.dek_id;
  given.wrapped := sealed.wrapped;
  given.sealed_by := 'server';
  given.operation := operation;
  given.app_version := app_version;
  given.caused_by := caused_by;
  given.invocation_id := invocation_id;
  given.subject_id := subject_id;
  given.idempotency_key := idempotency_key;
  if idempotency_key is not null then
    given.request_digest := oml.submission_digest(
      actor.auth, workarea, artifact, provenance, given.media_types, given.names, given.plaintext_digests,
      given.derived_from, operation, app_version, caused_by, invocation_id, subject_id
    );
  end if;
  return oml.store_submission(actor.tenant_id, actor.principal, actor.auth, given);
end
$$;
comment on function @extschema@.oml_submit(text, bytea, text, text, text, uuid, text[], text[], text[], bytea[], text, text, text, uuid, text, text)
  is 'Submit a body, with small attachments, to a workarea: encrypted at once, journalled by its digests, and held until a reviewer approved it and it was promoted. Pass the body as a bound parameter. Needs submit on the tenant and membership of the workarea.';
