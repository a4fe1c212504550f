-- One more outbox row for an event, for oml_requeue; oml_fleet itself may queue nothing. The caller holds the chain's lock.
create function oml.queue_again(tenant_id uuid, chain_seq bigint, target text)
returns bigint
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform set_config('oml.tenant_id', tenant_id::text, true);
  insert into oml.outbox (tenant_id, chain_seq, target) values (queue_again.tenant_id, queue_again.chain_seq, queue_again.target);
  return currval('oml.outbox_seq');
end
$$;
