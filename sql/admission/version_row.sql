create type oml.version_row as (
  tenant_id uuid, artifact_id uuid, version bigint, workarea_id uuid, author text, provenance text, media_type text, attachments int,
  plaintext_digest bytea, ciphertext_digest bytea, dek_id uuid, state text, reviewer text
);
comment on type oml.version_row is 'A row of oml.artifact_version, as functions hand it to each other: the tables are made after them.';
