-- Hands out whatever a superuser left there, for the verifier to name: a time that an envelope
-- cannot have is null. oml.prove_chain reads the same columns.
create function oml.chain_rows(tenant_id uuid, after_seq bigint, max_rows int)
returns setof oml.chain_row
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  page_end bigint;
begin
  perform oml.require_audit(tenant_id);
  page_end := oml.chain_page_end(tenant_id, after_seq, max_rows);
  return query
  select
    j.seq, j.tenant_id, j.event_id,
    case when j.occurred_at >= 'epoch' and j.occurred_at < '290000-01-01' then j.occurred_at end,
    j.type, j.schema_version, j.prev_hash, j.hash, j.kid, j.writer, j.principal, j."authorization",
    j.impersonation, j.operation, j.app_version, j.caused_by, j.invocation_id, j.entity_type,
    j.entity_id, j.subject_id, j.pii_class, j.synchronous_commit, j.artifact_id, j.artifact_version,
    j.plaintext_digest, j.ciphertext_digest, j.dek_id, j.payload::text, j.envelope
  from oml.journal j
  where j.tenant_id = chain_rows.tenant_id
    and j.seq > case when after_seq > 0 then after_seq else -9223372036854775808 end
    and j.seq <= page_end
  order by j.seq;
end
$$;
comment on function oml.chain_rows(uuid, bigint, int) is 'A page of one chain for a verifier outside; needs audit on the tenant or the provider.';
