create function oml.signer_public_key(signer text)
returns bytea
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
    plpy.error(error.message, sqlstate=error.sqlstate, hint=error.hint)
return key.public_key
$python$;
comment on function oml.signer_public_key(text) is 'The 32-byte Ed25519 public key behind a signer; errors OM030 to OM036 name what is wrong with it.';
