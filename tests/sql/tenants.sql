-- Tenants: born on the provider chain, each with a genesis event that proves it.
begin;
\ir shared/refused.sql
select plan(61);

create role operator login in role oml_operator;
select oml_grant('operator', 'provider', '{operate}');
select value as deployment from oml.setting where name = 'deployment_id' \gset
select max(seq) as head from oml.journal where tenant_id = :'deployment' \gset
set session authorization operator;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
reset session authorization;

-- On the provider chain.
select results_eq(
  format(
    'select seq, type, principal, writer, "authorization", payload from oml.journal where tenant_id = %L and seq > %s order by seq',
    :'deployment', :'head'
  ),
  format(
    $$ values
      (%s::bigint, 'tenant.created', 'operator', 'operator', 'membership:operate', jsonb_build_object('tenant_id', %L::uuid, 'name', 'globex')),
      (%s, 'tenant.created', 'operator', 'operator', 'membership:operate', jsonb_build_object('tenant_id', %L::uuid, 'name', 'initech')) $$,
    :'head' + 1, :'globex', :'head' + 2, :'initech'
  ),
  'each creation is a tenant.created event of the provider chain'
);

-- On the tenant's own.
select results_eq(
  format(
    $$ select tenant_id, seq, type, principal, "authorization", prev_hash, pii_class from oml.journal
       where tenant_id in (%L, %L) order by tenant_id = %L desc $$,
    :'globex', :'initech', :'globex'
  ),
  format(
    $$ values (%L::uuid, 1::bigint, 'tenant.genesis', 'operator', 'tenant.created', decode(repeat('00', 32), 'hex'), 'none'),
              (%L, 1, 'tenant.genesis', 'operator', 'tenant.created', decode(repeat('00', 32), 'hex'), 'none') $$,
    :'globex', :'initech'
  ),
  'a tenant''s chain begins with one genesis event that links to nothing'
);
select is(
  genesis.payload -> 'created_by',
  jsonb_build_object(
    'tenant_id', created.tenant_id, 'seq', created.seq, 'event_id', created.event_id, 'hash', encode(created.hash, 'hex')
  ),
  'the genesis event refers to its tenant.created by tenant, seq, event id and hash'
)
from oml.journal genesis, oml.journal created
where genesis.tenant_id = :'globex' and created.tenant_id = :'deployment' and created.seq = :'head' + 1;
select is(genesis.caused_by, created.event_id, 'and names it as its cause')
from oml.journal genesis, oml.journal created
where genesis.tenant_id = :'initech' and created.tenant_id = :'deployment' and created.seq = :'head' + 2;
select results_eq(
  format('select h.chain_no, count(o.*) from oml.chain_head h left join oml.outbox o using (tenant_id) where tenant_id = %L group by 1', :'globex'),
  format('select chain_no, 1::bigint from oml.tenant where name = %L', 'globex'),
  'the tenant has a chain_head row under its chain_no, and its genesis event is queued'
);
select ok(
  (select chain_no from oml.tenant where name = 'globex') between 1 and (select chain_no from oml.tenant where name = 'initech') - 1,
  'chain_no follows the order of creation'
);
select is((select chain_no from oml.tenant where name = 'provider'), 0::bigint, 'the provider chain has number 0');
select results_eq(
  format('select name, ok, events from unnest(array[%L, %L]) name, oml_verify_chain(name)', 'globex', 'initech'),
  $$ values ('globex', true, 1::bigint), ('initech', true, 1) $$,
  'each chain verifies by itself'
);
select is(
  (select count(*) from oml.journal a join oml.journal b using (event_id) where a.tenant_id <> b.tenant_id), 0::bigint,
  'no event belongs to two chains'
);

-- OM005.
set session authorization operator;
select pg_temp.refused(
  format('select oml_create_tenant(%L)', name), 'OM005', format('%L is not a tenant name', name),
  'Use 1 to 63 lower-case letters, digits, dots, underscores and hyphens, the first a letter or digit.',
  format('a tenant name is refused: %s', why)
)
from (values
  ('none', null), ('empty', ''), ('upper case', 'Globex'), ('a space', 'glo bex'), ('a leading dot', '.globex'),
  ('a leading hyphen', '-globex'), ('a slash', 'glo/bex'), ('a quote', 'glo''bex'), ('a line break', E'globex2\n'),
  ('beyond ASCII', 'glöbex'), ('64 letters', repeat('g', 64))
) n (why, name);
select isnt(oml_create_tenant(name), null::uuid, format('a tenant name is taken: %s', why))
from (values
  ('one letter', 'g'), ('one digit', '7'), ('63 letters', repeat('g', 63)), ('dots, underscores and hyphens', 'a.b_c-d.')
) n (why, name);

-- OM006.
select pg_temp.refused(
  format('select oml_create_tenant(%L)', name), 'OM006', format('tenant %L exists already', name),
  'Tenant names are unique for good.', format('there is only one %s', name)
)
from unnest(array['globex', 'acme', 'provider']) as name;
select is(
  (select count(*) from oml_create_tenant('umbrella')), 1::bigint, 'a refused creation does not stand in the way of the next'
);
reset session authorization;

-- The provider tenant is a tenant for memberships and no more.
select is((select tenant_id from oml.tenant where name = 'provider'), :'deployment'::uuid, 'the provider''s id is the deployment''s');
select throws_ok(
  format('select oml.create_chain(gen_random_uuid(), %L, 0, repeat(''k'', 8)::bytea)', 'second-provider'), '23505', null,
  'there is one chain of number 0'
);

-- A creation that is undone was never journalled.
savepoint before;
select isnt(oml_create_tenant('ghost'), null::uuid, 'a tenant is created');
rollback to before;
select is(
  (select count(*) from oml.journal where payload ->> 'name' = 'ghost') + (select count(*) from oml.tenant where name = 'ghost'), 0::bigint,
  'and rolled back with everything that told of it'
);
select ok((select ok from oml_verify_chain('provider')), 'the provider chain verifies');

select * from finish();
rollback;
