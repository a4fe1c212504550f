-- A page of one chain in seq order; checks nothing, so only the verifying functions may call it.
-- It ends at max_rows or 16 MiB of envelopes, whatever comes first, so that no chain can exhaust a
-- verifier's memory. It hands out whatever a superuser left there, for the verifier to name: the first
-- page starts below seq 1, and a time that is no number of microseconds is null.
create function oml.chain_page(tenant_id uuid, after_seq bigint, max_rows int default 1000)
returns setof oml.chain_row
language sql
volatile
set search_path = pg_catalog, pg_temp
as $$
  select
    j.seq, j.tenant_id::text, j.event_id::text,
    case when j.occurred_at >= 'epoch' and j.occurred_at < '290000-01-01'
      then (extract(epoch from j.occurred_at) * 1000000)::bigint end,
    j.type, j.schema_version, j.prev_hash, j.hash, j.kid, j.writer, j.principal, j."authorization",
    j.impersonation, j.operation, j.app_version, j.caused_by::text, j.invocation_id, j.entity_type,
    j.entity_id, j.subject_id, j.pii_class, j.artifact_id::text, j.artifact_version,
    j.plaintext_digest, j.ciphertext_digest, j.dek_id::text, j.payload::text, j.envelope
  from (
    select p.*, coalesce(
      sum(octet_length(p.envelope)) over (order by p.seq rows between unbounded preceding and 1 preceding), 0
    ) as bytes_before
    from (
      select * from oml.journal j
      where j.tenant_id = chain_page.tenant_id
        and j.seq > case when chain_page.after_seq > 0 then chain_page.after_seq else -9223372036854775808 end
      order by j.seq
      limit chain_page.max_rows
    ) p
  ) j
  where j.bytes_before < 16777216
  order by j.seq
$$;
