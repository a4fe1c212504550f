-- Hangs off the journal's insert, so that no path writes an event without its outbox rows. The sort lies
-- below the INSERT, whose default draws the numbers: so a chain's events are queued in chain order.
create function oml.enqueue()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into oml.outbox (tenant_id, chain_seq, target)
  select a.tenant_id, a.seq, t.target
  from appended a
  left join oml.event_type e on e.type = a.type and e.schema_version = a.schema_version
  cross join unnest(coalesce(e.targets, '{bronze.events}')) t (target)
  order by a.seq;
  return null;
end
$$;
