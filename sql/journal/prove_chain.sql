-- The Python step of oml_verify_chain: the provider chain first, since it says which keys and tenants
-- there are, then the tenant's own. Constant memory: one page of rows at a time. All null if neither
-- oml.tenant nor the provider chain knows the name.
-- Both chains are judged as they stood when their heads were read, in one statement: whatever key
-- signed an event up to there had come into force up to there.
create function oml.prove_chain(
  tenant text, provider_id text,
  out events bigint, out head bytea, out bad_tenant text, out first_bad_seq bigint, out fault text, out reason text
)
returns record
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
import sys

plpy.execute("select oml.load_core('{chain}')")
chain = sys.modules['_oml_core'].chain
known = plpy.prepare("""
    select c.kind, c.tenant_id::text,
      coalesce((select max(j.seq) from oml.journal j where j.tenant_id = c.tenant_id), 0) as seq,
      coalesce((select max(o.chain_seq) from oml.outbox o where o.tenant_id = c.tenant_id), 0) as queued
    from (values ('provider', $1::uuid), ('tenant', (select t.tenant_id from oml.tenant t where t.name = $2))) c (kind, tenant_id)
    """, ['text', 'text'])
page_end = plpy.prepare('select oml.chain_page_end($1::uuid, $2, $3) as seq', ['text', 'bigint', 'int'])
page = plpy.prepare("""
    select %s
    from oml.journal j
    where j.tenant_id = $1::uuid
      and j.seq > case when $2 > 0 then $2 else -9223372036854775808 end and j.seq <= $3
    order by j.seq
    """ % chain.SELECT_LIST, ['text', 'bigint', 'bigint'])

def prove(subject, ends):
    while subject.finding is None and subject.events < ends['seq']:
        limit = min(1000, ends['seq'] - subject.events)
        upto = plpy.execute(page_end, [ends['tenant_id'], subject.events, limit])[0]['seq']
        if upto is None:
            break
        chain.verify_rows(subject, plpy.execute(page, [ends['tenant_id'], subject.events, upto]))
    subject.expect_head(ends['queued'], 'the outbox')
    if subject.key_ring is not None:
        subject.expect_head(subject.key_ring.reached(subject.tenant_uuid), 'a rotation of the key')
    return subject.verdict()

ends = {row['kind']: row for row in plpy.execute(known, [provider_id, tenant])}
tenant_id = ends['tenant']['tenant_id']
provider = chain.Provider(chain.uuid.UUID(provider_id).bytes)
verdict = prove(provider, ends['provider'])
if verdict.ok and tenant_id != provider_id:
    created = [t for t in provider.tenants if t.name == tenant]
    if tenant_id is None and not created and tenant != 'provider':
        return None, None, None, None, None, None
    elif tenant_id is None:
        verdict = chain.unlisted(tenant)
    elif tenant_id in [t.tenant_id for t in created]:
        subject = chain.Tenant(created[0], provider.deployment_id, provider.key_ring)
        verdict = prove(subject, ends['tenant'])
    else:
        verdict = chain.never_created(tenant)
bad = verdict.finding
if bad is None:
    return verdict.events, verdict.head, None, None, None, None
return verdict.events, verdict.head, bad.tenant, bad.seq, str(bad.fault), bad.reason
$python$;
