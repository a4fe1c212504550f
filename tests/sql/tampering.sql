-- A superuser can take the guards off and change anything. The verifier names where the chain first breaks.
begin;
select plan(71);

create role clerk login in role oml_writer;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_grant('clerk', 'globex');
select oml_grant('clerk', 'initech');
select oml_register_event_type('invoice.exported');
select value as deployment from oml.setting where name = 'deployment_id' \gset
set session authorization clerk;
-- An event that was signed and rolled back, kept aside as a reader of memory might.
savepoint before;
select oml_append('invoice.exported', '{"never": "happened"}', 'globex');
reset session authorization;
select encode(convert_to(j::text, 'UTF8'), 'hex') as ghost from oml.journal j where tenant_id = :'globex' and seq = 2 \gset
rollback to before;
reset session authorization;
create temporary table ghost as select (convert_from(decode(:'ghost', 'hex'), 'UTF8')::oml.journal).*;
set session authorization clerk;
select oml_append(
  'invoice.exported', jsonb_build_object('n', i, 'total', 12.50, 'flag', true), 'globex', operation => 'export', app_version => '1.0',
  caused_by => '0190f3c8-0000-7000-8000-000000000001', invocation_id => 'call', entity_type => 'invoice', entity_id => 'INV',
  subject_id => 'person'
)
from generate_series(2, 6) i;
select oml_append('invoice.exported', '{"other": "chain"}', 'initech');
reset session authorization;

-- What the verifier says of a tenant after a tampering, which is undone.
create function pg_temp.verdict_after(tampering text, tenant text default 'globex')
returns text
language plpgsql
as $$
declare
  changed bigint;
  verdict text;
begin
  begin
    alter table oml.journal disable trigger all;
    alter table oml.outbox disable trigger all;
    alter table oml.tenant disable trigger all;
    alter table oml.chain_head disable trigger all;
    execute tampering;  -- one statement or several, of which the last must change something
    get diagnostics changed = row_count;
    if changed = 0 then
      raise exception 'nothing was tampered with';
    end if;
    select case when v.ok then 'ok ' || v.events else format('%s %s %s', v.chain, v.first_bad_seq, v.fault) end into strict verdict
    from oml_verify_chain(verdict_after.tenant) v;
    raise exception using errcode = 'ZZ000', message = verdict;
  exception when sqlstate 'ZZ000' then
    return sqlerrm;
  end;
end
$$;

select is(pg_temp.verdict_after('update oml.frontier set seq = seq'), 'ok 6', 'untouched, the chain verifies');

-- An edited column, each by each.
create temporary table edit (column_name text, expression text, fault text);
insert into edit values
  ('event_id', '''0190f3c8-0000-7000-8000-000000000002''', 'column-mismatch'),
  ('occurred_at', 'occurred_at + interval ''1 microsecond''', 'column-mismatch'),
  ('type', '''invoice.paid''', 'column-mismatch'),
  ('schema_version', '2', 'column-mismatch'),
  ('prev_hash', 'hash', 'column-mismatch'),
  ('hash', 'prev_hash', 'hash-mismatch'),
  ('kid', '''\x0000000000000000''', 'column-mismatch'),
  ('writer', '''somebody''', 'column-mismatch'),
  ('principal', '''Clerk''', 'column-mismatch'),
  ('authorization', '''superuser''', 'column-mismatch'),
  ('impersonation', '''somebody: a reason''', 'column-mismatch'),
  ('operation', 'null', 'column-mismatch'),
  ('app_version', '''1.1''', 'column-mismatch'),
  ('caused_by', '''0190f3c8-0000-7000-8000-000000000002''', 'column-mismatch'),
  ('invocation_id', '''another call''', 'column-mismatch'),
  ('entity_type', '''''', 'column-mismatch'),
  ('entity_id', '''INV ''', 'column-mismatch'),
  ('subject_id', 'null', 'column-mismatch'),
  ('pii_class', '''contact''', 'column-mismatch'),
  ('synchronous_commit', '''remote_apply''', 'column-mismatch'),
  ('artifact_id', '''0190f3c8-0000-7000-8000-000000000002''', 'column-mismatch'),
  ('artifact_version', '1', 'column-mismatch'),
  ('plaintext_digest', 'sha256('''')', 'column-mismatch'),
  ('ciphertext_digest', 'sha256('''')', 'column-mismatch'),
  ('dek_id', '''0190f3c8-0000-7000-8000-000000000002''', 'column-mismatch'),
  ('payload', 'jsonb_set(payload, ''{n}'', ''44'')', 'column-mismatch'),
  ('envelope', 'set_byte(envelope, 0, 0)', 'malformed-envelope'),
  -- A row that leaves its place is missed there.
  ('tenant_id', '''0190f3c8-0000-7000-8000-000000000002''', 'missing-event'),
  ('seq', '99', 'missing-event');
select is(
  pg_temp.verdict_after(format('update oml.journal set %I = %s where tenant_id = %L and seq = 4', column_name, expression, :'globex')),
  'globex 4 ' || fault, format('an edited %s is found', column_name)
)
from edit;
select is(
  pg_temp.verdict_after(format(
    'update oml.journal set idempotency_key = %L, request_digest = %L where tenant_id = %L and seq = 4', 'k', '\x00', :'globex'
  )),
  'ok 6', 'the idempotency key and its digest are no part of what was signed'
);
select set_eq(
  $$ select column_name from edit union all values ('idempotency_key'), ('request_digest') $$,
  $$ select attname::text from pg_attribute where attrelid = 'oml.journal'::regclass and attnum > 0 and not attisdropped $$,
  'no column of the journal goes unexamined'
);

-- An edited payload.
select is(
  pg_temp.verdict_after(format('update oml.journal set payload = %s where tenant_id = %L and seq = 4', expression, :'globex')),
  'globex 4 column-mismatch', format('%s is found', name)
)
from (values
  ('an added key', 'payload || ''{"x": null}'''), ('a removed key', 'payload - ''total'''), ('a removed payload', 'null'),
  ('an emptied payload', '''{}'''),
  ('a payload of another event', '(select payload from oml.journal where tenant_id = ''' || :'globex' || ''' and seq = 5)'),
  ('true in the place of 1', 'jsonb_set(payload, ''{n}'', ''true'')'), ('1 in the place of true', 'jsonb_set(payload, ''{flag}'', ''1'')'),
  ('a number turned into text', 'jsonb_set(payload, ''{n}'', ''"4"'')'), ('a JSON null', '''null''::jsonb')
) e (name, expression);

-- An edited envelope.
select is(
  pg_temp.verdict_after(format('update oml.journal set envelope = %s where tenant_id = %L and seq = 4', expression, :'globex')),
  'globex 4 ' || fault, format('%s is found', name)
)
from (values
  ('a first byte that is no tag', 'set_byte(envelope, 0, get_byte(envelope, 0) # 1)', 'malformed-envelope'),
  ('a byte too many', 'envelope || ''\x00''::bytea', 'malformed-envelope'),
  ('a byte too few', 'substr(envelope, 1, length(envelope) - 1)', 'malformed-envelope'),
  ('an empty envelope', '''\x''::bytea', 'malformed-envelope'),
  ('a bit of the signature', 'set_bit(envelope, 8 * length(envelope) - 1, 1 - get_bit(envelope, 8 * length(envelope) - 1))', 'signature-invalid'),
  ('a bit of the payload''s text', 'set_byte(envelope, position(''"total"''::bytea in envelope), ascii(''T''))', 'signature-invalid'),
  ('another key id', 'overlay(envelope placing ''\x0000000000000000''::bytea from position(kid in envelope))', 'unknown-key'),
  ('another event''s envelope', '(select envelope from oml.journal where tenant_id = ''' || :'globex' || ''' and seq = 5)', 'hash-mismatch'),
  ('another tenant''s envelope', '(select envelope from oml.journal where tenant_id = ''' || :'initech' || ''' and seq = 2)', 'hash-mismatch')
) e (name, expression, fault);
select is(
  pg_temp.verdict_after(format(
    'update oml.journal set envelope = v.e, hash = sha256(v.e)
     from (select set_byte(envelope, position(''"total"''::bytea in envelope), ascii(''T'')) as e
       from oml.journal where tenant_id = %1$L and seq = 4) v where tenant_id = %1$L and seq = 4', :'globex'
  )),
  'globex 4 signature-invalid', 'a hash made to fit an edited envelope does not help'
);
select is(
  pg_temp.verdict_after(format(
    'update oml.journal j set envelope = o.envelope, hash = o.hash, prev_hash = o.prev_hash, kid = o.kid from oml.journal o
     where j.tenant_id = %L and j.seq = 4 and o.tenant_id = %L and o.seq = 2', :'globex', :'initech'
  )),
  'globex 4 column-mismatch', 'nor does a whole event of another tenant'
);

-- Order.
select is(
  pg_temp.verdict_after(format(
    $$ alter table oml.journal drop constraint journal_event_id_key;
       update oml.journal j set event_id = o.event_id, occurred_at = o.occurred_at, payload = o.payload, prev_hash = o.prev_hash,
         hash = o.hash, envelope = o.envelope
       from oml.journal o where j.tenant_id = %1$L and o.tenant_id = %1$L and j.seq in (3, 4) and o.seq = 7 - j.seq $$, :'globex'
  )),
  'globex 3 column-mismatch', 'a swapped pair is found at the first of the two'
);
select is(
  pg_temp.verdict_after(format(
    $$ update oml.journal set seq = seq + 100 where tenant_id = %1$L and seq in (3, 4);
       update oml.journal set seq = 107 - seq where tenant_id = %1$L and seq in (103, 104) $$, :'globex'
  )),
  'globex 3 column-mismatch', 'so are two rows that changed their seqs'
);

-- Absence.
select is(
  pg_temp.verdict_after(format('delete from oml.journal where tenant_id = %L and seq = 4', :'globex')),
  'globex 4 missing-event', 'a deleted event is missed in its place'
);
select is(
  pg_temp.verdict_after(format(
    $$ delete from oml.journal where tenant_id = %1$L and seq = 4;
       update oml.journal set seq = seq - 1 where tenant_id = %1$L and seq > 4 $$,
    :'globex'
  )),
  'globex 4 column-mismatch', 'to close the gap does not hide it'
);
select is(
  pg_temp.verdict_after(format('delete from oml.journal where tenant_id = %L and seq = 1', :'globex')),
  'globex 1 missing-event', 'so is the genesis event'
);
select is(
  pg_temp.verdict_after(format('delete from oml.journal where tenant_id = %L and seq > 4', :'globex')),
  'globex 5 tail-missing', 'the outbox knows of a tail that was cut off'
);
select is(
  pg_temp.verdict_after(format('delete from oml.journal where tenant_id = %L and seq = 6', :'globex')),
  'globex 6 tail-missing', 'and of a single last event'
);
select is(
  pg_temp.verdict_after(format(
    'delete from oml.outbox where tenant_id = %1$L and chain_seq > 4; delete from oml.journal where tenant_id = %1$L and seq > 4', :'globex'
  )),
  'ok 4', 'a tail cut off both is seen by no one inside: only a checkpoint kept elsewhere tells'
);
select is(
  pg_temp.verdict_after(format('delete from oml.journal where tenant_id = %L', :'globex')),
  'globex 1 chain-missing', 'a chain that was deleted is missed from its first event on'
);
select is(
  pg_temp.verdict_after(format(
    'delete from oml.outbox where tenant_id = %1$L; delete from oml.journal where tenant_id = %1$L', :'globex'
  )),
  'globex 1 chain-missing', 'with its outbox too, the provider chain knows that it was created'
);

-- Insertion.
select is(
  pg_temp.verdict_after(format(
    $$ insert into oml.journal select (jsonb_populate_record(j, '{"seq": 7, "event_id": "0190f3c8-0000-7000-8000-000000000007"}')).*
       from oml.journal j where tenant_id = %L and seq = 6 $$, :'globex'
  )),
  'globex 7 column-mismatch', 'a copied event is found'
);
select is(
  pg_temp.verdict_after(format(
    $$ update oml.journal j set event_id = g.event_id, occurred_at = g.occurred_at, payload = g.payload, hash = g.hash, envelope = g.envelope,
         operation = null, app_version = null, caused_by = null, invocation_id = null, entity_type = null, entity_id = null, subject_id = null
       from ghost g where j.tenant_id = %L and j.seq = 2 $$, :'globex'
  )),
  'globex 3 broken-link', 'an event that was signed but rolled back does not fit: the next one links to another'
);

-- The provider chain.
select seq as created from oml.journal where tenant_id = :'deployment' and type = 'tenant.created' and payload ->> 'name' = 'globex' \gset
select is(
  pg_temp.verdict_after(format(
    $$ update oml.journal set payload = payload || '{"deployment": "mine"}' where tenant_id = %L and seq = 1 $$, :'deployment'
  )),
  'provider 1 column-mismatch', 'a fault of the provider chain is a fault of every tenant''s'
);
select is(
  pg_temp.verdict_after(
    format('update oml.journal set envelope = set_byte(envelope, 0, 0) where tenant_id = %L and seq = 1', :'deployment'), 'provider'
  ),
  'provider 1 malformed-envelope', 'the root key''s own event is verified too'
);
select is(
  pg_temp.verdict_after(format('delete from oml.journal where tenant_id = %L and seq = %s', :'deployment', :'created')),
  format('provider %s missing-event', :'created'), 'a tenant''s creation cannot be removed'
);
select is(
  pg_temp.verdict_after($$ insert into oml.tenant (tenant_id, name, chain_no) values (gen_random_uuid(), 'umbrella', 9999) $$, 'umbrella'),
  'umbrella 1 genesis-mismatch', 'a tenant that the provider chain never created is named'
);
select is(
  pg_temp.verdict_after($$ update oml.tenant set tenant_id = gen_random_uuid() where name = 'globex' $$),
  'globex 1 genesis-mismatch', 'so is one that took another''s name'
);

-- Without the guards off nothing of this happens, and all of it was undone.
select results_eq(
  $$ select name, ok, events from unnest(array['globex', 'initech']) name, oml_verify_chain(name) $$,
  $$ values ('globex', true, 6::bigint), ('initech', true, 2) $$, 'the chains stand as they were'
);
select is(
  (select count(*) from pg_trigger t join pg_class c on c.oid = t.tgrelid
   where c.relnamespace = 'oml'::regnamespace and not tgisinternal and tgenabled <> case tgname when 'guard_commit' then 'D' else 'A' end),
  0::bigint, 'and so do the guards'
);

select * from finish();
rollback;
