-- What the client encrypted under oml_data_key(). It is opened once, in memory, to check what the events then say.
create function @extschema@.oml_submit_sealed(
  workarea text,
  artifact uuid,
  version bigint,
  dek_id uuid,
  wrapped_dek bytea,
  kek_epoch int,
  ciphertext bytea,
  plaintext_digest bytea,
  ciphertext_digest bytea,
  media_type text,
  provenance text,
  tenant text default null,
  derived_from text[] default '{}',
  attachment_names text[] default '{}',
  attachment_types text[] default '{}',
  attachments bytea[] default '{}',
  attachment_plaintext_digests bytea[] default '{}',
  attachment_ciphertext_digests bytea[] default '{}',
  writer_envelope bytea default null,
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
as $$
declare
  overhead constant int := 41;  -- version byte, nonce and tag: oml.core.body
  actor record;
  checked record;
  n int := coalesce(cardinality(attachments), 0) + 1;
  media_types text[];
  names text[];
  bytes bigint[];
  ciphertexts bytea[];
  plaintext_digests bytea[] := array[plaintext_digest] || array(select d from unnest(attachment_plaintext_digests) d);
  ciphertext_digests bytea[] := array[ciphertext_digest] || array(select d from unnest(attachment_ciphertext_digests) d);
  request_digest bytea;
begin
  actor := oml.caller(tenant, '{submit}', true);
  if octet_length(writer_envelope) > 16384 then
    raise exception using
      errcode = 'OM206', message = format('a writer''s envelope of %s bytes', octet_length(writer_envelope)),
      hint = 'It has at most 16384 bytes, as the driver makes it.';
  end if;
  perform oml.require_claims(workarea, idempotency_key, operation, app_version, invocation_id, subject_id);
  if cardinality(attachments) > (oml.body_limits()).attachments or array_ndims(attachments) > 1 or array_ndims(attachment_names) > 1 or array_ndims(attachment_types) > 1 then
    perform oml.refuse_attachments(cardinality(attachments), cardinality(attachment_names), cardinality(attachment_types));
  end if;
  media_types := array[media_type] || attachment_types;
  names := array[''] || attachment_names;
  ciphertexts := array[ciphertext] || attachments;
  bytes := array(select greatest(b - overhead, 0) from unnest(oml.part_sizes(ciphertexts)) b);
  perform oml.require_content(provenance, media_types, names, bytes, derived_from);
  if artifact is null or version is null or version < 1 or dek_id is null or wrapped_dek is null
    or kek_epoch is distinct from oml.kek_epoch(actor.tenant_id)
    or cardinality(plaintext_digests) <> n or cardinality(ciphertext_digests) <> n
    or exists (select from unnest(plaintext_digests || ciphertext_digests) d where octet_length(d) is distinct from 32)
  then
    raise exception using
      errcode = 'OM209', message = 'the sealed submission is not whole',
      hint = 'Artifact, version, dek_id, wrapped_dek and kek_epoch are as oml_data_key() gave them out; each part has both digests, SHA-256 of 32 bytes.';
  end if;
  perform oml.kek_in_use(actor.tenant_id, kek_epoch);  -- locks: none is made from here on
  checked := oml.check_parts(
    actor.signer, uuid_send(actor.tenant_id), uuid_send(artifact), version, kek_epoch,
    uuid_send(dek_id), wrapped_dek, media_types, plaintext_digests, ciphertext_digests, ciphertexts
  );
  if checked.refusal is not null then
    perform oml.refuse_signing(checked.refusal);
  end if;
  if idempotency_key is not null then
    request_digest := oml.submission_digest(
      actor.auth, workarea, case when version > 1 then artifact end, provenance, media_types, names, plaintext_digests,
      coalesce(derived_from, '{}'), operation, app_version, caused_by, invocation_id, subject_id, 'client',
      case when writer_envelope is not null then coalesce(oml.writer_kid(writer_envelope), '') end
    );
  end if;
  return oml.store_submission(actor.tenant_id, actor.principal, actor.auth, (
    workarea, artifact, version, provenance, media_types, names, bytes, plaintext_digests, ciphertexts, ciphertext_digests,
    dek_id, kek_epoch, wrapped_dek, 'client', coalesce(derived_from, '{}'), writer_envelope,
    operation, app_version, caused_by, invocation_id, subject_id, idempotency_key, request_digest
  )::oml.submission);
end
$$;
comment on function @extschema@.oml_submit_sealed(text, uuid, bigint, uuid, bytea, int, bytea, bytea, bytea, text, text, text, text[], text[], text[], bytea[], bytea[], bytea[], bytea, text, text, text, uuid, text, text)
  is 'Submit what the client encrypted under the key of oml_data_key(), and perhaps signed with its own writer key. As oml_submit otherwise.';
