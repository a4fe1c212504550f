create type oml.batch_item as (
  n int, type text, schema_version int, payload jsonb, pii_class text, operation text, app_version text,
  caused_by uuid, invocation_id text, entity_type text, entity_id text, subject_id text,
  idempotency_key text, request_digest bytea,
  artifact_id uuid, artifact_version bigint, plaintext_digest bytea, ciphertext_digest bytea
);
comment on type oml.batch_item is 'One event of a batch after its checks: its place among the receipts, and what append_events takes.';
