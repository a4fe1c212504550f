-- An event of a submission, review or workarea as append_events takes it.
create function oml.admission_item(
  type text, payload jsonb, artifact_id uuid default null, version bigint default null,
  plaintext_digest bytea default null, ciphertext_digest bytea default null, n int default 1,
  operation text default null, app_version text default null, caused_by uuid default null,
  invocation_id text default null, subject_id text default null, idempotency_key text default null, request_digest bytea default null
)
returns oml.batch_item
language sql
immutable
set search_path = pg_catalog, pg_temp
as $$
  select (
    n, type, 1, payload, 'none', operation, app_version, caused_by, invocation_id, null, null, subject_id,
    idempotency_key, request_digest, artifact_id, version, plaintext_digest, ciphertext_digest
  )::oml.batch_item
$$;
