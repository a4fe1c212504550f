-- A fresh data key for one artifact, as it is and wrapped. As in oml.seal a refusal is returned.
create function oml.make_data_key(
  signer text, tenant_id bytea, artifact_id bytea, kek_epoch int, create_kek boolean,
  out dek_id uuid, out dek bytea, out wrapped bytea, out refusal text[]
)
returns record
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
import os
import sys

plpy.execute("select oml.load_core('{signer,body}')")
core = sys.modules['_oml_core']
core.body.keep_out_of_core_dumps()
body = core.body
dek_id, dek = body.new_dek()
try:
    provider = core.signer.provider(signer, os.getcwd())
    wrapped = provider.wrap(body.kek(tenant_id, kek_epoch), dek, body.dek_binding(tenant_id, artifact_id, dek_id), create=create_kek)
except core.keys.SignerError as error:
    return None, None, None, [error.sqlstate, error.message, error.hint]
return dek_id.hex(), dek, wrapped, None
$python$;
