-- The rows a chain consists of before its first event.
create function oml.create_chain(tenant_id uuid, name text, chain_no bigint)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into oml.tenant (tenant_id, name, chain_no) values (create_chain.tenant_id, name, chain_no);
  insert into oml.chain_head (tenant_id, chain_no) values (create_chain.tenant_id, chain_no);
end
$$;
