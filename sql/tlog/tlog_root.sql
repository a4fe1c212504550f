-- The Python step of oml.tlog_sign and oml.tlog_record: the root of a chain's first events, computed from
-- the journal and from the full subtrees recorded before; those that are not recorded yet are recorded.
-- Only new events are read, page by page. whole has the recorded ones counted, and all computed anew if
-- some are gone. What is wrong is returned.
create function oml.tlog_root(
  tenant_id uuid, generation int, size bigint, whole bool, out root bytea, out refusal text
)
returns record
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
import sys

plpy.execute("select oml.load_core('{merkle}')")
merkle = sys.modules['_oml_core'].merkle
WIDTH, BYTES = merkle.TILE_WIDTH, merkle.HASH_BYTES
PAGE = 16 * WIDTH
FULL = size - size % WIDTH

leaves = plpy.prepare("""
    select string_agg(sha256(decode('00', 'hex') || sha256(j.envelope)), null order by j.seq) as hashes
    from oml.journal j where j.tenant_id = $1 and j.seq > $2 and j.seq <= $3
    """, ['uuid', 'bigint', 'bigint'])
nodes = plpy.prepare("""
    select string_agg(t.hash, null order by t.n) as hashes from oml.tlog_node t
    where t.tenant_id = $1 and t.generation = $2 and t.level = $3 and t.n >= $4 and t.n < $5
    """, ['uuid', 'int', 'int', 'bigint', 'bigint'])
record = plpy.prepare("""
    insert into oml.tlog_node (tenant_id, generation, level, n, hash)
    select $1, $2, $3, $4 + i, substr($5, 32 * i + 1, 32) from generate_series(0, octet_length($5) / 32 - 1) i
    on conflict on constraint tlog_node_pkey do nothing
    """, ['uuid', 'int', 'int', 'bigint', 'bytea'])
recorded = plpy.prepare("""
    select coalesce(max(t.n) + 1, 0) as count from oml.tlog_node t
    where t.tenant_id = $1 and t.generation = $2 and t.level = 1
    """, ['uuid', 'int'])
counted = plpy.prepare(
    'select count(*) from oml.tlog_node t where t.tenant_id = $1 and t.generation = $2', ['uuid', 'int'])

class Known:
    def tile(self, level, index, width):
        first = WIDTH * index
        if level == 0:
            rows = plpy.execute(leaves, [tenant_id, first, first + width])
        else:
            rows = plpy.execute(nodes, [tenant_id, generation, level, first, first + width])
        return rows[0]['hashes'] or b''

def extend(at):
    while at < FULL:
        end = min(FULL, at - at % PAGE + PAGE)
        hashes = plpy.execute(leaves, [tenant_id, at, end])[0]['hashes'] or b''
        if len(hashes) != BYTES * (end - at):
            raise merkle.ProofError(f'the journal has gaps between {at + 1} and {end}')
        added = [hashes[i:i + BYTES] for i in range(0, len(hashes), BYTES)]
        for tile in merkle.new_tiles(Known(), at, added):
            if tile.level > 0:
                had = max(0, (at >> merkle.TILE_HEIGHT * tile.level) - WIDTH * tile.index)
                plpy.execute(record, [
                    tenant_id, generation, tile.level, WIDTH * tile.index + had, tile.hashes[BYTES * had:]])
        at = end
    return merkle.root(Known(), size)

begin = min(FULL, WIDTH * plpy.execute(recorded, [tenant_id, generation])[0]['count'])
if whole:
    all_of_them = sum(size >> merkle.TILE_HEIGHT * level for level in range(1, 8))
    if plpy.execute(counted, [tenant_id, generation])[0]['count'] < all_of_them:
        begin = 0
try:
    try:
        return extend(begin), None
    except merkle.ProofError:
        return extend(0), None  # a subtree on the way is gone
except merkle.ProofError as error:
    return None, str(error)
$python$;
