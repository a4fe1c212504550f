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
      select o.seq, sum(octet_length(j.envelope)) over (order by o.seq) - octet_length(j.envelope) as bytes_before
      from (
        select o.seq, o.tenant_id, o.chain_seq
        from oml.outbox o
        where o.seq > after_seq and o.seq <= upto
        order by o.seq
        limit max_rows
      ) o
      left join oml.journal j on j.tenant_id = o.tenant_id and j.seq = o.chain_seq
    ) b
    where coalesce(b.bytes_before, 0) < max_bytes
  );
end
$$;
comment on function oml.lake_batch_end(bigint, bigint, int, bigint)
  is 'Last outbox seq of the batch after a seq, bounded by rows and bytes. Needs operate or audit on the provider.';
