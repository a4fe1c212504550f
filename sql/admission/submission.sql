create type oml.submission as (
  workarea text, artifact_id uuid, version bigint, provenance text, media_types text[], names text[], bytes bigint[],
  plaintext_digests bytea[], ciphertexts bytea[], ciphertext_digests bytea[],
  dek_id uuid, kek_epoch int, wrapped bytea, sealed_by text, derived_from text[], writer_envelope bytea,
  operation text, app_version text, caused_by uuid, invocation_id text, subject_id text, idempotency_key text, request_digest bytea
);
comment on type oml.submission is 'An encrypted submission after its checks, as oml.store_submission takes it. Arrays have one element a part, the body''s first.';
