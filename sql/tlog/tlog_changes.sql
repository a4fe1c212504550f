-- The chains with events in a range of outbox seqs, and the last event of each: what a publication has
-- to extend. The range is read by the outbox's primary key, and memory is bounded by the tenants in it.
create function oml.tlog_changes(after_seq bigint, upto bigint)
returns table (tenant_id uuid, tenant text, generation int, last_seq bigint, size bigint)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate', 'audit');
  return query
  with changed (tenant_id, last_seq) as (
    select o.tenant_id, max(o.chain_seq)
    from oml.outbox o
    where o.seq > after_seq and o.seq <= upto
    group by o.tenant_id
  )
  select c.tenant_id, t.name, coalesce(l.generation, 1), c.last_seq, coalesce(l.size, 0)
  from changed c
  join oml.tenant t on t.tenant_id = c.tenant_id
  left join oml.tlog l on l.tenant_id = c.tenant_id
  order by t.chain_no;
end
$$;
comment on function oml.tlog_changes(bigint, bigint)
  is 'Chains with events in a range of outbox seqs: the last of these events, and generation and size of the log as recorded. Needs operate or audit on the provider.';
