-- The Python step of oml.tlog_record: what is wrong with a checkpoint that is said to be of this log, size
-- and root; null when nothing is.
create function oml.checkpoint_fault(
  checkpoint text, deployment_id uuid, tenant_id uuid, generation int, size bigint, root bytea, public_keys bytea[]
)
returns text
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
import sys

plpy.execute('select oml.load_core()')
core = sys.modules['_oml_core']
note = core.note
try:
    head, signed = note.parse_checkpoint((checkpoint or '').encode())
    origin = note.origin(core.wire.uuid.UUID(deployment_id), core.wire.uuid.UUID(tenant_id), generation)
    if (head.origin, head.size, head.root) != (origin, size, root):
        return 'it is of another log, size or root'
    if not any(note.is_signed(signed, note.log_verifier(origin, key)) for key in public_keys):
        return 'no key that is or was in force signed it'
except note.NoteError as error:
    return str(error)
return None
$python$;
