-- oml.seal for an event about a version of an artifact, which is named by the last four arguments.
create function oml.seal_artifact(
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
  text, -- synchronous_commit
  bytea, -- artifact_id
  bigint, -- artifact_version
  bytea, -- plaintext_digest
  bytea -- ciphertext_digest
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
    sealer = core.seal.sealer(args[0], SD['data_directory'], args[1])
    event = sealer.seal(*args[2:22], core.seal.Artifact(*args[22:]))
except core.keys.SignerError as error:
    return None, None, None, None, [error.sqlstate, error.message, error.hint]
except (OverflowError, ValueError) as error:
    return None, None, None, None, ['OM017', f'the event cannot be encoded: {error}', 'Check the payload and the claims.']
return *event, None
$python$;
