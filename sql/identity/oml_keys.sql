create function @extschema@.oml_keys()
returns table (
  kid text, purpose text, state text, tenant text, principal text, issued_seq bigint, retired_seq bigint, public_key text
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('audit', 'operate');
  return query
  select
    encode(k.kid, 'hex'), k.purpose,
    case
      when k.retired_seq is not null then 'retired'
      when k.purpose = 'writer' or k.kid = h.kid then 'in force'
      else 'standby'
    end,
    k.tenant, k.principal, k.issued_seq, k.retired_seq, encode(k.public_key, 'hex')
  from oml.key k
  join oml.chain_head h on h.tenant_id = (select s.value from oml.setting s where s.name = 'deployment_id')::uuid
  order by k.issued_seq;
end
$$;
comment on function @extschema@.oml_keys()
  is 'The keys that were ever issued and what has become of them. Needs audit or operate on the provider.';
