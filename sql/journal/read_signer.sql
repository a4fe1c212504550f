-- What a signer holds: the public key of this kid, or the only one there is, and the deployment that a
-- signer of its own process signs for. As in oml.seal a refusal is returned.
create function oml.read_signer(
  signer text,
  kid bytea default null,
  out public_key bytea,
  out deployment_id uuid,
  out refusal text[]
)
returns record
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
import os
import sys

plpy.execute('select oml.load_core()')
core = sys.modules['_oml_core']
try:
    provider = core.signer.provider(signer or '', os.getcwd())
    deployment, held = core.signer.inspect(provider)
except core.keys.SignerError as error:
    return None, None, [error.sqlstate, error.message, error.hint]
if kid is None and len(held) != 1:
    return None, None, [
        'OM038', f'signer {signer} holds {len(held)} keys, not one',
        'Say which: oml keys rotate-signing --kid …. A deployment begins with one: at genesis let signer_keys name that alone.']
found, = held if kid is None else [kid]
if found not in held:
    names = ', '.join(sorted(k.hex() for k in held)) or 'none'
    return None, None, [
        'OM039', f'signer {signer} does not hold key {found.hex()}, but {names}',
        'Put the key back where the signer reads it, or name one that it holds.']
return held[found], None if deployment is None else str(deployment), None
$python$;
