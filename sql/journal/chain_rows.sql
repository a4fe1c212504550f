-- One chain in seq order, in the form oml.core.chain reads: UUIDs as text, time in microseconds.
create function oml.chain_rows(chain_id uuid, after_seq bigint default 0, max_rows int default 1000)
returns table (
  seq bigint, tenant_id text, event_id text, occurred_at bigint, type text, schema_version int,
  prev_hash bytea, hash bytea, kid bytea, writer text, principal text, "authorization" text,
  impersonation text, operation text, app_version text, caused_by text, invocation_id text,
  entity_type text, entity_id text, subject_id text, pii_class text, artifact_id text,
  artifact_version bigint, plaintext_digest bytea, ciphertext_digest bytea, dek_id text,
  payload text, envelope bytea
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform oml.require_audit(chain_rows.chain_id);
  return query
  select
    j.seq, j.tenant_id::text, j.event_id::text,
    (extract(epoch from j.occurred_at) * 1000000)::bigint,
    j.type, j.schema_version, j.prev_hash, j.hash, j.kid, j.writer, j.principal, j."authorization",
    j.impersonation, j.operation, j.app_version, j.caused_by::text, j.invocation_id, j.entity_type,
    j.entity_id, j.subject_id, j.pii_class, j.artifact_id::text, j.artifact_version,
    j.plaintext_digest, j.ciphertext_digest, j.dek_id::text, j.payload::text, j.envelope
  from oml.journal j
  where j.tenant_id = chain_rows.chain_id and j.seq > chain_rows.after_seq
  order by j.seq
  limit chain_rows.max_rows;
end
$$;
comment on function oml.chain_rows(uuid, bigint, int) is 'A page of one chain for a verifier; needs audit on the tenant or the provider.';
