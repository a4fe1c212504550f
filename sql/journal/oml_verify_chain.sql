create function @extschema@.oml_verify_chain(tenant text)
returns table (
  chain text, ok boolean, events bigint, head bytea, first_bad_seq bigint, fault text, reason text
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  chain_id uuid;
  proof record;
begin
  perform oml.require_genesis();
  select t.tenant_id into chain_id from oml.tenant t where t.name = oml_verify_chain.tenant;
  perform oml.require_audit(chain_id);
  select p.* into proof
  from oml.prove_chain(
    oml_verify_chain.tenant, (select s.value from oml.setting s where s.name = 'deployment_id')
  ) p;
  if proof.events is null then
    raise exception using
      errcode = 'OM003', message = format('there is no tenant %L', oml_verify_chain.tenant),
      hint = 'oml verify lists the tenants of the provider chain.';
  end if;
  return query select
    coalesce(proof.bad_tenant, oml_verify_chain.tenant), proof.fault is null, proof.events, proof.head,
    proof.first_bad_seq, proof.fault, proof.reason;
end
$$;
comment on function @extschema@.oml_verify_chain(text)
  is 'Verify the provider chain and then this tenant''s: every signature, hash, link and column. Names the first bad seq and why. Needs audit.';
