-- The next batch with its rows, of all targets, in order: each event is looked up once. It ends as
-- oml.lake_batch_end says. An outbox row whose event is gone comes with nulls: the writer stops at it.
-- size is what the row costs: its envelope, and the body that goes with it.
-- The settings keep the plan to one walk along the outbox: nothing is sorted, and payloads behind the
-- batch's end are not unpacked.
create function oml.lake_batch(after_seq bigint, upto bigint, max_rows int, max_bytes bigint)
returns table (
  outbox_seq bigint, target text, tenant_id text, scope_id text, seq bigint, event_id text, type text,
  schema_version int, occurred_at timestamptz, principal text, writer text, "authorization" text,
  impersonation text, operation text, app_version text, caused_by text, invocation_id text,
  entity_type text, entity_id text, subject_id text, pii_class text, synchronous_commit text,
  artifact_id text, artifact_version bigint, plaintext_digest bytea, ciphertext_digest bytea, dek_id text,
  payload text, prev_hash bytea, hash bytea, kid bytea, bytes bigint, size bigint
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set max_parallel_workers_per_gather = 0
set enable_hashjoin = off
set enable_mergejoin = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
set work_mem = '32MB'
as $$
#variable_conflict use_column
begin
  perform oml.require_provider('operate', 'audit');
  return query
  select
    b.outbox_seq, b.target, b.tenant, b.tenant, b.seq, b.event_id::text, b.type,
    b.schema_version, b.occurred_at, b.principal, b.writer, b."authorization",
    b.impersonation, b.operation, b.app_version, b.caused_by::text, b.invocation_id,
    b.entity_type, b.entity_id, b.subject_id, b.pii_class, b.synchronous_commit,
    b.artifact_id::text, b.artifact_version, b.plaintext_digest, b.ciphertext_digest, b.dek_id::text,
    b.payload::text, b.prev_hash, b.hash, b.kid, octet_length(b.envelope)::bigint, b.size
  from (
    select s.*, sum(s.size) over (order by s.outbox_seq rows between unbounded preceding and 1 preceding) as size_before
    from (
      select
        o.seq as outbox_seq, o.target, o.tenant_id::text as tenant, j.*,
        octet_length(j.envelope)::bigint + case when o.target = 'silver.claims' then coalesce((
          select octet_length(x.ciphertext) from oml.body x
          where x.tenant_id = j.tenant_id and x.artifact_id = j.artifact_id and x.version = j.artifact_version and x.part = 0
        ), 0) else 0 end as size
      from (
        select q.seq, q.target, q.tenant_id, q.chain_seq
        from oml.outbox q
        where q.seq > after_seq and q.seq <= upto
        order by q.seq
        limit max_rows
      ) o
      left join oml.journal j on j.tenant_id = o.tenant_id and j.seq = o.chain_seq
    ) s
  ) b
  where coalesce(b.size_before, 0) < max_bytes
  order by b.outbox_seq;
end
$$;
comment on function oml.lake_batch(bigint, bigint, int, bigint)
  is 'The batch after a seq, bounded by rows and bytes: its outbox rows of all targets, with their events. Needs operate or audit on the provider.';
