create function oml.accepted_losses()
returns table (tenant_id text, lost_from bigint, lost_to bigint, lake_events bigint, outbox_after bigint, outbox_upto bigint)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate', 'audit');
  return query
  select a.tenant_id::text, a.lost_from, a.lost_to, a.lake_events, a.outbox_after, a.outbox_upto
  from oml.accepted_loss a
  order by a.accepted_seq, a.tenant_id;
end
$$;
comment on function oml.accepted_losses()
  is 'The events that were accepted as lost. Needs operate or audit on the provider.';
