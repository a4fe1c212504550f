-- Checks what a client encrypted before its events are signed: the key is wrapped for this artifact, each part
-- opens with it under the digests that are given, and is of its media type. The content is looked at in memory
-- and dropped. Returns the lengths of the plaintexts, or as in oml.seal a refusal.
create function oml.check_parts(
  signer text, tenant_id bytea, artifact_id bytea, version bigint, kek_epoch int, dek_id bytea, wrapped bytea,
  media_types text[], plaintext_digests bytea[], ciphertext_digests bytea[], ciphertexts bytea[],
  out bytes bigint[], out refusal text[]
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
    plpy.execute("select oml.load_core('{signer,body,envelope}'), oml.load_core('{media}', 'filetype')")
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
lengths = []
for part, (media_type, known_as, sealed_as, ciphertext) in enumerate(
        zip(media_types, plaintext_digests, ciphertext_digests, ciphertexts, strict=True)):
    what = 'the body' if part == 0 else f'attachment {part}'
    if core.envelope.digest(ciphertext) != sealed_as:
        return None, [
            'OM200', f'{what} has another ciphertext digest than is said',
            'It is the SHA-256 of all stored bytes: version byte, nonce, ciphertext and tag.']
    content = body.open_part(dek, place, part, known_as, ciphertext)
    if content is None:
        return None, [
            'OM200', f'{what} does not decrypt to a plaintext of the digest that is said',
            'It is encrypted under the key of oml_data_key(), for that artifact and version, and bound to its plaintext\'s SHA-256.']
    try:
        core.media.require(part, media_type, content)
    except core.keys.SignerError as error:
        return None, [error.sqlstate, error.message, error.hint]
    lengths.append(len(content))
return lengths, None
$python$;
