create function oml.read_signer(signer text, out public_key bytea, out refusal text[])
returns record
language plpython3u
volatile strict
set search_path = pg_catalog, pg_temp
as $python$
import os
import sys

plpy.execute('select oml.load_core()')
core = sys.modules['_oml_core']
try:
    key, _ = core.seal.signing_key(signer, os.getcwd())
except core.keys.KeyFileError as error:
    return None, [error.sqlstate, error.message, error.hint]
return key.public_key, None
$python$;

create function oml.signer_public_key(signer text, kid bytea default null)
returns bytea
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  found record;
begin
  select s.public_key, s.refusal into found from oml.read_signer(signer) s;
  if found.refusal is not null then
    perform oml.refuse_signing(found.refusal);
  end if;
  return found.public_key;
end
$$;
comment on function oml.signer_public_key(text, bytea) is 'The 32-byte Ed25519 public key behind a signer; errors OM030 to OM036 name what is wrong with it.';
