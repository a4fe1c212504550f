-- oml.seal for consecutive events of one chain: each links to the one before it, so they are sealed in
-- one go. Arrays have one element an event. A refusal ends the batch.
create type oml.sealed_batch as (
  event_ids uuid[], occurred_us bigint[], hashes bytea[], envelopes bytea[], refusal text[]
);
comment on type oml.sealed_batch is 'What oml.seal_batch makes of consecutive events, one element each; or a refusal (SQLSTATE, message, hint).';

create function oml.seal_batch(
  signer text,
  signing_kid bytea,
  deployment_id bytea,
  tenant_id bytea,
  first_seq bigint,
  prev_hash bytea,
  writer text,
  principal text,
  auth text,
  impersonation text,
  synchronous_commit text,
  types text[],
  schema_versions int[],
  payloads text[],
  pii_classes text[],
  operations text[],
  app_versions text[],
  caused_bys bytea[],
  invocation_ids text[],
  entity_types text[],
  entity_ids text[],
  subject_ids text[],
  artifact_ids bytea[],
  artifact_versions bigint[],
  plaintext_digests bytea[],
  ciphertext_digests bytea[]
)
returns oml.sealed_batch
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

def refused(code, message, hint):
    return None, None, None, None, [code, message, hint]

seq, prev = first_seq, prev_hash
event_ids, times, hashes, envelopes = [], [], [], []
try:
    sealer = core.seal.sealer(signer, SD['data_directory'], signing_kid)
    time = core.signer.BatchTime(len(types))
    for (kind, version, payload, pii, operation, app_version, caused_by, invocation, entity_type,
         entity_id, subject, *artifact) in zip(
            types, schema_versions, payloads, pii_classes, operations, app_versions, caused_bys,
            invocation_ids, entity_types, entity_ids, subject_ids, artifact_ids, artifact_versions,
            plaintext_digests, ciphertext_digests, strict=True):
        if time.is_due(len(hashes)):
            plpy.execute('select')  # raises what interrupts a query: nothing in Python does
        event_id, now, prev, data = sealer.seal(
            deployment_id, tenant_id, seq, prev, kind, version, payload, writer, principal, auth, impersonation,
            operation, app_version, caused_by, invocation, entity_type, entity_id, subject, pii, synchronous_commit,
            None if artifact[0] is None else core.seal.Artifact(*artifact))
        event_ids.append(event_id)
        times.append(now)
        hashes.append(prev)
        envelopes.append(data)
        seq += 1
except core.keys.SignerError as error:
    return refused(error.sqlstate, error.message, error.hint)
except (OverflowError, ValueError) as error:
    return refused('OM017', f'the event cannot be encoded: {error}', 'Check the payload and the claims.')
return event_ids, times, hashes, envelopes, None
$python$;
