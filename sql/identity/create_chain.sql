-- The rows a chain consists of before its first event. Its signing key is the provider chain's, which
-- the caller has locked; at genesis it is the root key.
create function oml.create_chain(tenant_id uuid, name text, chain_no bigint, kid bytea)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into oml.tenant (tenant_id, name, chain_no) values (create_chain.tenant_id, name, chain_no);
  insert into oml.chain_head (tenant_id, chain_no, kid) values (create_chain.tenant_id, chain_no, kid);
end
$$;
