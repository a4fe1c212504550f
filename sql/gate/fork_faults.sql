-- The Python step of the database's own check: of each chain the last event and its link to the one
-- before, found by the primary key, so that it costs the same however long the chains are. Of the outbox
-- the last thousand rows, read first: the journal has them too, since both are written in one transaction.
create function oml.fork_faults(deployment_id text)
returns table (tenant text, seq bigint, class text, reason text)
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
import sys

plpy.execute("select oml.load_core('{chain}')")
chain = sys.modules['_oml_core'].chain
deployment = chain.uuid.UUID(deployment_id).bytes
signing = "select k.kid, k.public_key from oml.key k where k.purpose in ('root', 'signing')"
public_keys = {row['kid']: row['public_key'] for row in plpy.execute(signing)}
queued = {row['tenant_id']: row['seq'] for row in plpy.execute("""
    select t.tenant_id::text, max(t.chain_seq) as seq
    from (select o.tenant_id, o.chain_seq from oml.outbox o order by o.seq desc limit 1000) t
    group by 1
    """)}
page = plpy.prepare("""
    select t.chain_no, t.name, t.tenant_id::text as chain_id,
      exists (select from oml.chain_head h where h.tenant_id = t.tenant_id) as has_head, %s
    from (select * from oml.tenant t where t.chain_no > $1 order by t.chain_no limit 20) t
    left join lateral (
      select * from oml.journal j where j.tenant_id = t.tenant_id order by j.seq desc limit 2
    ) j on true
    order by t.chain_no, j.seq
    """ % chain.SELECT_LIST, ['bigint'])
after = -9223372036854775808
seen = set()
while True:
    tails = {}
    for row in plpy.execute(page, [after]):
        tails.setdefault(row['chain_id'], []).append(row)
        after = row['chain_no']
    if not tails:
        break
    for chain_id, rows in tails.items():
        seen.add(chain_id)
        tail = chain.Tail(rows[0]['name'], chain.uuid.UUID(chain_id).bytes, deployment, public_keys)
        tail.read([row for row in rows if row['seq'] is not None])
        tail.expect_head(queued.get(chain_id, 0), 'the outbox')
        if not rows[0]['has_head']:
            tail.fail(tail.events + 1, chain.Fault.HEAD_MISSING, 'the chain has no row in oml.chain_head')
        bad = tail.verdict().finding
        if bad is not None:
            yield bad.tenant, bad.seq, str(bad.fault), bad.reason
for chain_id in sorted(set(queued) - seen):
    yield chain_id, 1, str(chain.Fault.CHAIN_MISSING), 'the outbox knows it, oml.tenant does not'
$python$;
