-- Why an envelope is not this key's signature of just this submission; null if it is. Part 0 is the body.
create function oml.writer_fault(
  envelope bytea, public_key bytea, tenant_id bytea, artifact_id bytea, version bigint,
  plaintext_digests bytea[], ciphertext_digests bytea[], media_types text[], names text[]
)
returns text
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
import sys

plpy.execute("select oml.load_core('{submission}')")
core = sys.modules['_oml_core']
submission = core.submission
parts = [submission.Signed(*part) for part in zip(plaintext_digests, ciphertext_digests, media_types, names, strict=True)]
place = core.body.Place(tenant_id, artifact_id, version)
return None if submission.is_signed(envelope, public_key, place, parts) else 'it does not sign this submission'
$python$;
