-- The Python step of oml_verify_chain: the provider chain first, since it says which keys and tenants
-- there are, then the tenant's own. Constant memory: one page of rows at a time. A null tenant_id says
-- that oml.tenant lacks the name; then all is null unless the provider chain knows it.
create function oml.prove_chain(
  tenant text, tenant_id text, provider_id text,
  out events bigint, out head bytea, out bad_tenant text, out first_bad_seq bigint, out fault text, out reason text
)
returns record
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
import sys

plpy.execute('select oml.load_core()')
chain = sys.modules['_oml_core'].chain
page = plpy.prepare('select * from oml.chain_page($1::uuid, $2)', ['text', 'bigint'])
known = plpy.prepare('select max(o.chain_seq) as seq from oml.outbox o where o.tenant_id = $1::uuid', ['text'])

def prove(subject, chain_id):
    # Read before the rows: each query has a snapshot of its own, and the chain may grow meanwhile.
    reached = plpy.execute(known, [chain_id])[0]['seq'] or 0
    after = 0
    while subject.finding is None:
        rows = plpy.execute(page, [chain_id, after])
        if len(rows) == 0:
            break
        chain.verify_rows(subject, rows)
        after = rows[len(rows) - 1]['seq']
    subject.expect_head(reached, 'the outbox')
    return subject.verdict()

provider = chain.Provider(chain.uuid.UUID(provider_id).bytes)
verdict = prove(provider, provider_id)
if verdict.ok and tenant_id != provider_id:
    created = [t for t in provider.tenants if t.name == tenant]
    if tenant_id is None and not created and tenant != 'provider':
        return None, None, None, None, None, None
    elif tenant_id is None:
        verdict = chain.unlisted(tenant)
    elif tenant_id in [t.tenant_id for t in created]:
        verdict = prove(chain.Tenant(created[0], provider), tenant_id)
    else:
        verdict = chain.never_created(tenant)
bad = verdict.finding
if bad is None:
    return verdict.events, verdict.head, None, None, None, None
return verdict.events, verdict.head, bad.tenant, bad.seq, str(bad.fault), bad.reason
$python$;
