-- What the outbox holds under one seq: a lake that stands at a seq the outbox lacks is another's.
create function oml.lake_outbox_row(outbox_seq bigint)
returns table (target text, event_id text, hash bytea)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate', 'audit');
  return query
  select o.target, j.event_id::text, j.hash
  from oml.outbox o
  left join oml.journal j on j.tenant_id = o.tenant_id and j.seq = o.chain_seq
  where o.seq = lake_outbox_row.outbox_seq;
end
$$;
comment on function oml.lake_outbox_row(bigint)
  is 'Target, event id and hash under one outbox seq. Needs operate or audit on the provider.';
