create function @extschema@.oml_verify_chain(tenant text)
returns table (
  tenant text, ok boolean, events bigint, head bytea, first_bad_seq bigint, fault text, reason text
)
language plpython3u
volatile
security definer
set search_path = pg_catalog, pg_temp
as $python$
import sys
import uuid

plpy.execute('select oml.load_core()')
chain = sys.modules['_oml_core'].chain

found = plpy.execute(plpy.prepare(
    'select t.tenant_id::text as id, (select s.value from oml.setting s where s.name = \'deployment_id\') as provider'
    ' from oml.tenant t where t.name = $1', ['text']), [tenant])
plpy.execute(plpy.prepare('select oml.require_audit($1::uuid)', ['text']), [found[0]['id'] if found else None])
if not found:
    plpy.error(f'there is no tenant {tenant!r}', sqlstate='OM003', hint='oml verify lists the tenants of the provider chain.')
tenant_id, provider_id = found[0]['id'], found[0]['provider']
page = plpy.prepare('select * from oml.chain_rows($1::uuid, $2)', ['text', 'bigint'])
known = plpy.prepare('select max(o.chain_seq) as seq from oml.outbox o where o.tenant_id = $1::uuid', ['text'])

def verify(subject, chain_id):
    after = 0
    while True:
        rows = plpy.execute(page, [chain_id, after])
        chain.verify_rows(subject, rows)
        if len(rows) == 0 or subject.finding is not None:
            break
        after = rows[len(rows) - 1]['seq']
    subject.expect_head(plpy.execute(known, [chain_id])[0]['seq'] or 0, 'the outbox')
    return subject.verdict()

provider = chain.Provider(uuid.UUID(provider_id).bytes)
verdict = verify(provider, provider_id)
if verdict.ok and tenant_id != provider_id:
    created = [t for t in provider.tenants if t.tenant_id == tenant_id]
    if created:
        verdict = verify(chain.Tenant(created[0], provider), tenant_id)
    else:
        verdict = chain.never_created(tenant)
bad = verdict.finding
return [(
    verdict.tenant, verdict.ok, verdict.events, verdict.head,
    bad.seq if bad else None, str(bad.fault) if bad else None, bad.reason if bad else None)]
$python$;
comment on function @extschema@.oml_verify_chain(text)
  is 'Verify the provider chain and then this tenant''s: every signature, hash, link and column. Names the first bad seq and why. Needs audit.';
