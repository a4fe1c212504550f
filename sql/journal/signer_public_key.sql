create function oml.signer_public_key(signer text, kid bytea default null)
returns bytea
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  found record;
begin
  select s.public_key, s.refusal into found from oml.read_signer(signer, kid) s;
  if found.refusal is not null then
    perform oml.refuse_signing(found.refusal);
  end if;
  return found.public_key;
end
$$;
comment on function oml.signer_public_key(text, bytea) is 'The 32-byte Ed25519 public key of this kid behind a signer, or of its only key; errors OM030 to OM039 and OM090 to OM094 name what is wrong with it.';
