-- Decrypts parts of one version, each checked against its plaintext's digest. A part that is not what its digest
-- says ends it. As in oml.seal a refusal is returned.
create function oml.open_parts(
  signer text, tenant_id bytea, artifact_id bytea, version bigint, kek_epoch int, dek_id bytea, wrapped bytea,
  parts int[], plaintext_digests bytea[], ciphertexts bytea[],
  out contents bytea[], out refusal text[]
)
returns record
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
core = SD.get('core')
if core is None:
    import os
    import sys
    plpy.execute("select oml.load_core('{signer,body}')")
    core = SD['core'] = sys.modules['_oml_core']
    SD['data_directory'] = os.getcwd()
    core.body.keep_out_of_core_dumps()
body = core.body
place = body.Place(tenant_id, artifact_id, version)
try:
    provider = core.signer.provider(signer, SD['data_directory'])
    dek = body.unwrap(provider, place, kek_epoch, dek_id, wrapped)
except core.keys.SignerError as error:
    return None, [error.sqlstate, error.message, error.hint]
contents = []
for part, digest, ciphertext in zip(parts, plaintext_digests, ciphertexts, strict=True):
    content = None if ciphertext is None else body.open_part(dek, place, part, digest, ciphertext)
    if content is None:
        what = 'the body' if part == 0 else f'attachment {part}'
        state = 'is missing' if ciphertext is None else 'is not what its digest in the journal says'
        return None, [
            'OM210', f'{what} of the stored version {version} {state}',
            'The stored bytes were removed or changed behind OML\'s back. Restore them from a backup; the journal says what they must be.']
    contents.append(content)
return contents, None
$python$;
