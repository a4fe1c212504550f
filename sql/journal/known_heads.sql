-- What oml.tenant and the outbox say of each chain: a tail cut off the journal alone shows here, and a
-- tenant whose row is gone or carries another's name.
create function oml.known_heads()
returns table (tenant_id text, name text, chain_seq bigint)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('audit', 'operate');
  return query
  select coalesce(t.tenant_id, o.tenant_id)::text, t.name, coalesce(o.chain_seq, 0)
  from oml.tenant t
  full join (
    select b.tenant_id, max(b.chain_seq) as chain_seq from oml.outbox b group by b.tenant_id
  ) o on o.tenant_id = t.tenant_id;
end
$$;
comment on function oml.known_heads()
  is 'Name and highest chain seq of each tenant, as oml.tenant and the outbox know them. Needs audit or operate on the provider.';
