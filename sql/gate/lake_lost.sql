-- Of given rows of bronze, those that are not the journal's under their outbox seq. accepted: as lost, once.
-- conflict: the outbox has that very number for something else.
create function oml.lake_lost(outbox_seqs bigint[], tenant_ids uuid[], seqs bigint[], hashes bytea[])
returns table (outbox_seq bigint, tenant_id uuid, tenant text, seq bigint, hash bytea, journal_head bigint, conflict boolean, accepted boolean)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform oml.require_provider('operate', 'audit');
  return query
  select l.outbox_seq, l.tenant_id, t.name, l.seq, l.hash,
    (select coalesce(max(j.seq), 0) from oml.journal j where j.tenant_id = l.tenant_id),
    o.seq is not null,
    o.seq is null and exists (
      select from oml.accepted_loss a
      where a.tenant_id = l.tenant_id and l.seq between a.lost_from and a.lost_to
        and l.outbox_seq > a.outbox_after and l.outbox_seq <= a.outbox_upto
    )
  from unnest(outbox_seqs, tenant_ids, seqs, hashes) l (outbox_seq, tenant_id, seq, hash)
  left join oml.outbox o on o.seq = l.outbox_seq
  left join oml.journal j on j.tenant_id = l.tenant_id and j.seq = l.seq
  left join oml.tenant t on t.tenant_id = l.tenant_id
  where o.seq is null or j.seq is null or j.hash <> l.hash
    or (o.tenant_id, o.chain_seq, o.target) <> (l.tenant_id, l.seq, 'bronze.events')
  order by l.outbox_seq;
end
$$;
comment on function oml.lake_lost(bigint[], uuid[], bigint[], bytea[])
  is 'Of given rows of bronze, those that the journal lacks, and whether that was accepted. Needs operate or audit on the provider.';
