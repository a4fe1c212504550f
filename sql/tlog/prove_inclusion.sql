-- The Python step of oml_prove_inclusion: the proof from the cached subtrees and from the leaves of the
-- tiles that it touches, held against the checkpoint's root before it is handed out; with it the keys
-- that lead from the root key to whoever signed. What is wrong is returned.
create function oml.prove_inclusion(
  tenant_id uuid, seq bigint, generation int, checkpoint text, deployment_id uuid, out proof text, out refusal text
)
returns record
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
import sys

plpy.execute("select oml.load_core()")
core = sys.modules['_oml_core']
merkle, note = core.merkle, core.note

leaves = plpy.prepare("""
    select sha256(j.envelope) as entry from oml.journal j
    where j.tenant_id = $1 and j.seq > $2 and j.seq <= $2 + $3 order by j.seq
    """, ['uuid', 'bigint', 'bigint'])
nodes = plpy.prepare("""
    select t.hash from oml.tlog_node t
    where t.tenant_id = $1 and t.generation = $2 and t.level = $3 and t.n >= $4 and t.n < $4 + $5 order by t.n
    """, ['uuid', 'int', 'int', 'bigint', 'bigint'])
event = plpy.prepare(
    'select j.envelope from oml.journal j where j.tenant_id = $1 and j.seq = $2', ['uuid', 'bigint'])
issued = plpy.prepare("""
    select k.kid, k.public_key, k.purpose, k.issued_seq, j.kid as issuer
    from oml.key k join oml.journal j on j.tenant_id = $1 and j.seq = k.issued_seq
    where k.purpose in ('root', 'signing')
    """, ['uuid'])

class Cached:
    def tile(self, level, index, width):
        first = merkle.TILE_WIDTH * index
        if level == 0:
            rows = plpy.execute(leaves, [tenant_id, first, width])
            return b''.join(merkle.leaf_hash(row['entry']) for row in rows)
        rows = plpy.execute(nodes, [tenant_id, generation, level, first, width])
        return b''.join(row['hash'] for row in rows)

try:
    head, signed = note.parse_checkpoint(checkpoint.encode())
    known = {row['kid']: row for row in plpy.execute(issued, [deployment_id])}
    signers = [
        kid for kid, row in known.items() if note.is_signed(signed, note.log_verifier(head.origin, row['public_key']))]
    if not signers:
        return None, 'no key of the deployment signed the checkpoint'
    data = plpy.execute(event, [tenant_id, seq])[0]['envelope']
    path = merkle.inclusion_proof(Cached(), seq - 1, head.size)
    leaf = merkle.leaf_hash(core.envelope.digest(data))
    merkle.verify_inclusion(seq - 1, head.size, leaf, path, head.root)
    # From each signer back to the root key, which the verifier knows. What was issued later is issued by
    # what was issued before, so the order of issue is that in which each can be verified.
    needed = {}
    for kid in (signers[0], core.envelope.decode(data).kid):
        while kid in known and known[kid]['purpose'] == 'signing' and kid not in needed:
            needed[kid] = known[kid]['issued_seq']
            kid = known[kid]['issuer']
    issues = [plpy.execute(event, [deployment_id, at])[0]['envelope'] for at in sorted(needed.values())]
except (note.NoteError, merkle.ProofError, core.cbor.MalformedError) as error:
    return None, str(error)
made = core.proof.Proof(seq - 1, tuple(path), data, tuple(issues), checkpoint.encode())
return core.proof.encode(made).decode(), None
$python$;
