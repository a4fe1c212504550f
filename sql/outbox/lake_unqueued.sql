-- Events without their outbox row: somebody wrote with triggers off, or removed the row.
create function oml.lake_unqueued()
returns table (tenant_id text, chain_seq bigint)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate', 'audit');
  return query
  select j.tenant_id::text, j.seq
  from oml.journal j
  where not exists (
    select from oml.outbox o
    where o.tenant_id = j.tenant_id and o.chain_seq = j.seq and o.target = 'bronze.events'
  )
  order by 1, 2;
end
$$;
comment on function oml.lake_unqueued()
  is 'Events without an outbox row for bronze.events. Needs operate or audit on the provider.';
