-- Encrypts the parts of a submission under a fresh data key, and wraps that: the one place where the database
-- process handles a body, in memory and nowhere else. As in oml.seal a refusal is returned and not raised.
-- A key-encryption key is made where there is none only if create_kek says so: see oml.kek_in_use.
create type oml.sealed_parts as (
  dek_id uuid, wrapped bytea, plaintext_digests bytea[], ciphertexts bytea[], ciphertext_digests bytea[], refusal text[]
);
comment on type oml.sealed_parts is 'The encrypted parts of a submission with their digests and their wrapped data key; or a refusal (SQLSTATE, message, hint).';

create function oml.seal_parts(
  signer text, tenant_id bytea, artifact_id bytea, version bigint, kek_epoch int, create_kek boolean,
  contents bytea[], media_types text[]
)
returns oml.sealed_parts
language plpython3u
volatile
-- search_path: pinned by its callers
as $python$
core = SD.get('core')
if core is None:
    import os
    import sys
    plpy.execute("select oml.load_core('{signer,body}'), oml.load_core('{media}', 'filetype')")
    core = SD['core'] = sys.modules['_oml_core']
    SD['data_directory'] = os.getcwd()
    core.body.keep_out_of_core_dumps()

try:
    for part, (media_type, content) in enumerate(zip(media_types, contents, strict=True)):
        core.media.require(part, media_type, content)
    body = core.body
    place = body.Place(tenant_id, artifact_id, version)
    dek_id, dek = body.new_dek()
    provider = core.signer.provider(signer, SD['data_directory'])
    wrapped = provider.wrap(body.kek(tenant_id, kek_epoch), dek, body.dek_binding(tenant_id, artifact_id, dek_id), create=create_kek)
    parts = [body.seal(dek, place, part, content) for part, content in enumerate(contents)]
except core.keys.SignerError as error:
    return None, None, None, None, None, [error.sqlstate, error.message, error.hint]
return (dek_id.hex(), wrapped, [p.plaintext_digest for p in parts], [p.ciphertext for p in parts],
    [p.ciphertext_digest for p in parts], None)
$python$;
