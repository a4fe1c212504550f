-- The Python step of oml_prove_inclusion: the proof from the cached subtrees and from the leaves of the
-- tiles that it touches, and the rotations that lead from the root key to whoever signed. Verified under
-- that key before it is handed out. What is wrong is returned.
create function oml.prove_inclusion(
  tenant_id uuid, seq bigint, generation int, checkpoint text, deployment_id uuid, out proof text, out refusal text
)
returns record
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
import json
import sys

plpy.execute("select oml.load_core('{proof}')")
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
signing = plpy.prepare("""
    select k.kid, k.public_key, k.purpose, k.issued_seq, k.retired_seq, j.envelope as retired
    from oml.key k left join oml.journal j on j.tenant_id = $1 and j.seq = k.retired_seq
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
    # The keys that were in force, in order. Of each but the first: where it was issued, the last page in
    # which the one before retires, and behind it where it takes over. A key without a successor that is
    # retired was withdrawn.
    rows = list(plpy.execute(signing, [deployment_id]))
    known = {row['kid'].hex(): row for row in rows}
    eras, handovers = [row for row in rows if row['purpose'] == 'root'], []
    while len(eras) == len(handovers) + 1 <= len(known):
        retired = eras[-1]['retired']
        said = {} if retired is None else json.loads(core.envelope.decode(retired).fields['payload'])
        following = known.get(said.get('successor'))
        if following is not None:
            last = eras[-1]['retired_seq'] + said['pages'] - 1
            handovers.append((following['issued_seq'], last, last + 1))
            eras.append(following)
        else:
            break
    kids = [row['kid'] for row in eras]
    signers = [
        at for at, row in enumerate(eras) if note.is_signed(signed, note.log_verifier(head.origin, row['public_key']))]
    if not signers:
        return None, 'no key of the deployment signed the checkpoint'
    data = plpy.execute(event, [tenant_id, seq])[0]['envelope']
    signer = core.envelope.decode(data).kid
    if signer not in kids:
        return None, f'the event is signed by {signer.hex()}, which was never in force'
    path = merkle.inclusion_proof(Cached(), seq - 1, head.size)
    shown = handovers[:max(signers[0], kids.index(signer))]
    ways = [plpy.execute(event, [deployment_id, at])[0]['envelope'] for three in shown for at in three]
    made = core.proof.Proof(seq - 1, tuple(path), data, tuple(ways), checkpoint.encode())
    core.proof.verify(made, [eras[0]['public_key']])
except (note.NoteError, merkle.ProofError, core.cbor.MalformedError, core.proof.MalformedError, core.proof.ProvesNothingError) as error:
    return None, str(error)
return core.proof.encode(made).decode(), None
$python$;
