-- The Python step of oml.tlog_sign: the note's text, its signature, and that verified once more. As in
-- oml.seal a refusal is returned.
create function oml.seal_checkpoint(
  signer text,
  signing_kid bytea,
  public_key bytea,
  deployment_id uuid,
  tenant_id uuid,
  generation int,
  size bigint,
  root bytea,
  out checkpoint text,
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
note = core.note
try:
    head = note.TreeHead(
        core.wire.uuid.UUID(deployment_id), core.wire.uuid.UUID(tenant_id), generation, size, root)
    signature = core.signer.provider(signer, os.getcwd()).sign_checkpoint(signing_kid, head)
    log = note.log_verifier(note.read_checkpoint(head.text).origin, public_key)
    signed = note.Note(head.text, (note.log_signature(log, signature),))
    note.is_signed(signed, log)
except core.keys.SignerError as error:
    return None, [error.sqlstate, error.message, error.hint]
except note.NoteError as error:
    return None, ['OM144', f'the checkpoint cannot be signed: {error}', 'A root is the 32 bytes of a SHA-256.']
return signed.encode().decode(), None
$python$;
