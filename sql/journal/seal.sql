-- The one Python step of an append: id, time, encode, sign, hash (architecture: The envelope).
-- UUIDs come as 16 bytes. A refusal is returned and not raised, so that the caller can raise it under
-- its own name. The key must be the one the deployment issued, or nothing could verify.
create function oml.seal(
  signer text,
  signing_kid bytea,
  deployment_id bytea,
  tenant_id bytea,
  seq bigint,
  prev_hash bytea,
  type text,
  schema_version int,
  payload text,
  writer text,
  principal text,
  auth text,
  impersonation text,
  operation text,
  app_version text,
  caused_by bytea,
  invocation_id text,
  entity_type text,
  entity_id text,
  subject_id text,
  pii_class text,
  synchronous_commit text,
  artifact_id bytea,
  artifact_version bigint,
  plaintext_digest bytea,
  ciphertext_digest bytea,
  dek_id bytea
)
returns oml.sealed
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
core = SD.get('core')
if core is None:
    import os
    import sys
    plpy.execute('select oml.load_core()')
    core = SD['core'] = sys.modules['_oml_core']
    SD['data_directory'] = os.getcwd()
now = core.envelope.now_us()
try:
    event_id = core.envelope.uuid7(now // 1000)
    data, digest = core.seal.sealer(signer, SD['data_directory'], signing_kid).seal((
        deployment_id, seq, prev_hash, tenant_id, core.envelope.VERSION, artifact_id, now, auth,
        app_version, caused_by, ciphertext_digest, dek_id, entity_id, entity_type, event_id,
        impersonation, invocation_id, operation, pii_class, plaintext_digest,
        payload.encode('utf-8'), principal, synchronous_commit, subject_id, schema_version, type, artifact_version, writer))
except core.keys.SignerError as error:
    return None, None, None, None, None, [error.sqlstate, error.message, error.hint]
except (OverflowError, ValueError) as error:
    return None, None, None, None, None, ['OM017', f'the event cannot be encoded: {error}', 'Check the payload and the claims.']
return event_id.hex(), now, signing_kid, digest, data, None
$python$;
