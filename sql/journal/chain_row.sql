create type oml.chain_row as (
  seq bigint, tenant_id uuid, event_id uuid, occurred_at timestamptz, type text, schema_version int,
  prev_hash bytea, hash bytea, kid bytea, writer text, principal text, "authorization" text,
  impersonation text, operation text, app_version text, caused_by uuid, invocation_id text,
  entity_type text, entity_id text, subject_id text, pii_class text, synchronous_commit text,
  artifact_id uuid, artifact_version bigint, plaintext_digest bytea, ciphertext_digest bytea, dek_id uuid,
  payload text, envelope bytea
);
comment on type oml.chain_row is 'A journal row as verifiers outside read it: payload as JSON text.';
