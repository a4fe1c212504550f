-- The rows of one target in a half-open range of outbox seqs, in order, with their events. An outbox
-- row whose event is gone comes with nulls: the writer stops at it.
create function oml.lake_rows(target text, after_seq bigint, upto bigint)
returns table (
  outbox_seq bigint, tenant_id text, scope_id text, seq bigint, event_id text, type text,
  schema_version int, occurred_at timestamptz, principal text, writer text, "authorization" text,
  impersonation text, operation text, app_version text, caused_by text, invocation_id text,
  entity_type text, entity_id text, subject_id text, pii_class text, synchronous_commit text,
  artifact_id text, artifact_version bigint, plaintext_digest bytea, ciphertext_digest bytea, dek_id text,
  payload text, prev_hash bytea, hash bytea, kid bytea, bytes bigint
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform oml.require_provider('operate', 'audit');
  return query
  select
    o.seq, o.tenant_id::text, o.tenant_id::text, j.seq, j.event_id::text, j.type,
    j.schema_version, j.occurred_at, j.principal, j.writer, j."authorization",
    j.impersonation, j.operation, j.app_version, j.caused_by::text, j.invocation_id,
    j.entity_type, j.entity_id, j.subject_id, j.pii_class, j.synchronous_commit,
    j.artifact_id::text, j.artifact_version, j.plaintext_digest, j.ciphertext_digest, j.dek_id::text,
    j.payload::text, j.prev_hash, j.hash, j.kid, octet_length(j.envelope)::bigint
  from oml.outbox o
  left join oml.journal j on j.tenant_id = o.tenant_id and j.seq = o.chain_seq
  where o.target = lake_rows.target and o.seq > lake_rows.after_seq and o.seq <= lake_rows.upto
  order by o.seq;
end
$$;
comment on function oml.lake_rows(text, bigint, bigint)
  is 'Outbox rows of one target in a range of seqs, in order, with their events. Needs operate or audit on the provider.';
