-- What the outbox says each chain had reached: a tail cut off the journal alone shows here.
create function oml.known_heads()
returns table (tenant_id text, chain_seq bigint)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('audit', 'operate');
  return query
  select o.tenant_id::text, max(o.chain_seq) from oml.outbox o group by o.tenant_id;
end
$$;
comment on function oml.known_heads()
  is 'Highest chain seq of each tenant, as the outbox knows it. Needs audit or operate on the provider.';
