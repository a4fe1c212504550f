create function oml.chain_rows(tenant_id uuid, after_seq bigint, max_rows int)
returns setof oml.chain_row
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_audit(tenant_id);
  return query select * from oml.chain_page(tenant_id, after_seq, max_rows);
end
$$;
comment on function oml.chain_rows(uuid, bigint, int) is 'A page of one chain for a verifier outside; needs audit on the tenant or the provider.';
