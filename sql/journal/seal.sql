-- The one Python step of an append: id, time, encode, sign, hash (architecture: The envelope).
-- UUIDs come as 16 bytes. A refusal is returned and not raised, so that the caller can raise it under its own
-- name. The key must be the one the deployment issued, or nothing could verify.
-- Arguments have no names: of each name PL/Python would make a global, at each call.
create function oml.seal(
  text, -- signer
  bytea, -- kid
  bytea, -- deployment_id
  bytea, -- tenant_id
  bigint, -- seq
  bytea, -- prev_hash
  text, -- type
  int, -- schema_version
  text, -- payload
  text, -- writer
  text, -- principal
  text, -- auth
  text, -- impersonation
  text, -- operation
  text, -- app_version
  bytea, -- caused_by
  text, -- invocation_id
  text, -- entity_type
  text, -- entity_id
  text, -- subject_id
  text, -- pii_class
  text -- synchronous_commit
)
returns oml.sealed
language plpython3u
volatile
-- search_path: pinned by its callers
as $python$
core = SD.get('core')
if core is None:
    import os
    import sys
    plpy.execute('select oml.load_core()')
    core = SD['core'] = sys.modules['_oml_core']
    SD['data_directory'] = os.getcwd()
try:
    event = core.seal.sealer(args[0], SD['data_directory'], args[1]).seal(*args[2:])
except core.keys.SignerError as error:
    return None, None, None, None, [error.sqlstate, error.message, error.hint]
except (OverflowError, ValueError) as error:
    return None, None, None, None, ['OM017', f'the event cannot be encoded: {error}', 'Check the payload and the claims.']
return *event, None
$python$;
