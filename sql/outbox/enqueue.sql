-- Hangs off the journal's insert, so that no path writes an event without its outbox row.
create function oml.enqueue()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into oml.outbox (tenant_id, chain_seq, target) values (new.tenant_id, new.seq, 'bronze.events');
  return null;
end
$$;
