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
as $$
declare
  actor record;
  sealed oml.sealed_parts;
  contents bytea[];
  media_types text[];
  names text[] := '{""}';
  bytes bigint[];
  artifact_id uuid := coalesce(artifact, gen_random_uuid());
  version bigint := 1;
  kek_epoch int;
  request_digest bytea;
begin
  actor := oml.caller(tenant, '{submit}', true);
  -- What is usual is asked in one expression, what is wrong elsewhere: see oml_append.
  if (
    octet_length(body) between 1 and 1048576 and media_type is not null and provenance in ('observed', 'imported', 'simulated')
    and attachments = '{}' and attachment_names = '{}' and attachment_types = '{}' and derived_from = '{}'
    and octet_length(convert_to(concat_ws(' ', media_type, workarea, idempotency_key, operation, app_version, invocation_id, subject_id), 'UTF8')) <= 2048
  ) then
    contents := array[body];
    media_types := array[media_type];
    bytes := array[octet_length(body)];
  else
    perform oml.require_claims(workarea, idempotency_key, operation, app_version, invocation_id, subject_id);
    if cardinality(attachments) > (oml.body_limits()).attachments or array_ndims(attachments) > 1 or array_ndims(attachment_names) > 1 or array_ndims(attachment_types) > 1 then
      perform oml.refuse_attachments(cardinality(attachments), cardinality(attachment_names), cardinality(attachment_types));
    end if;
    contents := array[body] || attachments;
    media_types := array[media_type] || attachment_types;
    names := names || attachment_names;
    bytes := oml.part_sizes(contents);
    perform oml.require_content(provenance, media_types, names, bytes, derived_from);
  end if;
  if artifact is not null then
    version := oml.next_version(actor.tenant_id, artifact, actor.principal);
    if version = 1 then
      perform oml.refuse_artifact(artifact);
    end if;
  end if;
  kek_epoch := oml.kek_epoch(actor.tenant_id);
  sealed := oml.seal_parts(
    actor.signer, uuid_send(actor.tenant_id), uuid_send(artifact_id), version, kek_epoch,
    not oml.kek_in_use(actor.tenant_id, kek_epoch), contents, media_types
  );
  if sealed.refusal is not null then
    perform oml.refuse_signing(sealed.refusal);
  end if;
  if idempotency_key is not null then
    request_digest := oml.submission_digest(
      actor.auth, workarea, artifact, provenance, media_types, names, sealed.plaintext_digests,
      coalesce(derived_from, '{}'), operation, app_version, caused_by, invocation_id, subject_id
    );
  end if;
  return oml.store_submission(actor.tenant_id, actor.principal, actor.auth, (
    workarea, artifact_id, version, provenance, media_types, names, bytes,
    sealed.plaintext_digests, sealed.ciphertexts, sealed.ciphertext_digests,
    sealed.dek_id, kek_epoch, sealed.wrapped, 'server', coalesce(derived_from, '{}'), null,
    operation, app_version, caused_by, invocation_id, subject_id, idempotency_key, request_digest
  )::oml.submission);
end
$$;
comment on function @extschema@.oml_submit(text, bytea, text, text, text, uuid, text[], text[], text[], bytea[], text, text, text, uuid, text, text)
  is 'Submit a body, with small attachments, to a workarea: encrypted at once, journalled by its digests, and held until a reviewer approved it and it was promoted. Pass the body as a bound parameter. Needs submit on the tenant and membership of the workarea.';
