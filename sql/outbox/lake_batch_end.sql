-- The last outbox seq of the batch that starts after a seq: bounded by rows and bytes, and by the
-- fenced limit. Null when nothing is there. At least one row is taken, however large.
create function oml.lake_batch_end(after_seq bigint, upto bigint, max_rows int, max_bytes bigint)
returns bigint
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate', 'audit');
  return (
    select max(b.seq)
    from (
      select s.seq, sum(s.size) over (order by s.seq rows between unbounded preceding and 1 preceding) as size_before
      from (
        select
          o.seq,
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
  );
end
$$;
comment on function oml.lake_batch_end(bigint, bigint, int, bigint)
  is 'Last outbox seq of the batch after a seq, bounded by rows and bytes. Needs operate or audit on the provider.';
