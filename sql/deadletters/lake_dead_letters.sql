create function oml.lake_dead_letters()
returns table (
  outbox_seq bigint, tenant_id text, tenant text, seq bigint, target text, artifact_id text, version bigint,
  reason text, attempts int, skipped_at timestamptz, requeued_as bigint
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate', 'audit');
  return query
  select
    d.outbox_seq, d.tenant_id::text, t.name, d.chain_seq, d.target, d.artifact_id::text, d.artifact_version,
    d.reason, d.attempts, d.skipped_at, d.requeued_seq
  from oml.dead_letter d
  left join oml.tenant t on t.tenant_id = d.tenant_id
  order by d.outbox_seq;
end
$$;
comment on function oml.lake_dead_letters()
  is 'What the lake writer passed over, and what was queued again for it. Needs operate or audit on the provider.';
