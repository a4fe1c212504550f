-- A batch: all events or none, in one chain or several, each as oml_append would have written it.
begin;
\ir shared/refused.sql
select * from no_plan();

create role clerk login in role oml_writer;
create role drifter login in role oml_writer;
create role desk login in role oml_writer;
create role boss login in role oml_operator, oml_writer;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_register_event_type('note.added');
select oml_register_event_type('note.added', 2, required_keys => '{text}', max_bytes => 200, pii_class => 'contact');
select oml_register_event_type('note.empty', max_bytes => 2);
select oml_register_event_type('note.judged', 1, '{"properties": {"n": {"type": "integer"}}}', state_keys => '{n}');
select oml_register_event_type('note.gone');
do $$
begin
  perform oml_grant('clerk', 'globex');
  perform oml_grant('clerk', 'initech', principal => 'ada');
  perform oml_grant('desk', 'globex');
  perform oml_grant('boss', 'provider', '{operate}');
end
$$;
create function pg_temp.journal() returns setof oml.journal language sql security definer as 'select * from oml.journal';
create function pg_temp.outbox() returns setof oml.outbox language sql security definer as 'select * from oml.outbox';
create function pg_temp.name_of(uuid) returns text language sql security definer as 'select name from oml.tenant where tenant_id = $1';

-- Receipts in the order of the events, whatever the order of the chains.
set session authorization clerk;
create temporary table receipt as
select row_number() over () as n, r.*
from oml_append_batch('[
  {"type": "note.added", "tenant": "initech", "payload": {"text": "1"}},
  {"type": "note.added", "tenant": "globex", "payload": {"text": "2", "b": 1.50, "a": [1, {"x": null}]}, "operation": "op",
   "app_version": "7", "caused_by": "018f0000-0000-7000-8000-000000000001", "invocation_id": "inv", "entity_type": "note",
   "entity_id": "4711", "subject_id": "Łucja", "idempotency_key": "key"},
  {"type": "note.added", "tenant": "initech", "payload": {"n": 3}, "schema_version": 1},
  {"type": "note.added", "tenant": "globex", "payload": {"text": "4"}, "operation": null, "caused_by": null, "schema_version": null}
]') r;
select results_eq(
  'select n, pg_temp.name_of(tenant_id), seq from receipt order by n',
  $$ values (1::bigint, 'initech', 2::bigint), (2, 'globex', 2), (3, 'initech', 3), (4, 'globex', 3) $$,
  'receipts come in the order of the events, chain seqs too'
);
select bag_eq(
  'select j.tenant_id, j.seq, j.event_id, j.hash from pg_temp.journal() j where j.type = ''note.added''',
  'select tenant_id, seq, event_id, hash from receipt', 'and are those of the journal'
);
select results_eq(
  $$ select j.type, j.schema_version, j.payload, j.pii_class, j.operation, j.app_version, j.caused_by, j.invocation_id, j.entity_type,
       j.entity_id, j.subject_id, j.idempotency_key, j.writer, j.principal, j."authorization", j.impersonation
     from pg_temp.journal() j join receipt r using (event_id) where r.n = 2 $$,
  $$ values ('note.added', 2, '{"text": "2", "b": 1.50, "a": [1, {"x": null}]}'::jsonb, 'contact', 'op', '7',
       '018f0000-0000-7000-8000-000000000001'::uuid, 'inv', 'note', '4711', 'Łucja', 'key', 'clerk', 'clerk', 'membership:append', null::text) $$,
  'an event has every field that was given'
);
select results_eq(
  'select n, j.principal, j.schema_version, j.operation from pg_temp.journal() j join receipt using (event_id) order by n',
  $$ values (1::bigint, 'ada', 2, null), (2, 'clerk', 2, 'op'), (3, 'ada', 1, null), (4, 'clerk', 2, null) $$,
  'its principal is that of its tenant, and its version the newest unless one is named'
);
select is(j.hash, sha256(j.envelope), format('event %s is hashed', r.n)) from pg_temp.journal() j join receipt r using (event_id) order by r.n;
select is_empty(
  $$ select from (select o.seq, o.chain_seq, lag(o.chain_seq) over (partition by o.tenant_id order by o.seq) as before from pg_temp.outbox() o) o
     where o.chain_seq <= o.before $$,
  'outbox rows are drawn in the order of each chain'
);
select is(
  (select count(*) from pg_temp.outbox() o join receipt r on r.tenant_id = o.tenant_id and r.seq = o.chain_seq), 4::bigint, 'one for each event'
);

-- Requests that were made before.
select results_eq(
  $$ select (oml_append_batch('[{"type": "note.added", "tenant": "globex", "payload": {"text": "2", "b": 1.50, "a": [1, {"x": null}]},
       "operation": "op", "app_version": "7", "caused_by": "018f0000-0000-7000-8000-000000000001", "invocation_id": "inv",
       "entity_type": "note", "entity_id": "4711", "subject_id": "Łucja", "idempotency_key": "key"}]')).event_id $$,
  'select event_id from receipt where n = 2', 'a repeated request gets its first receipt'
);
select is(
  (oml_append(
    'note.added', '{"text": "2", "b": 1.50, "a": [1, {"x": null}]}', 'globex', 'key', 'op', '7',
    '018f0000-0000-7000-8000-000000000001', 'inv', 'note', '4711', 'Łucja'
  )).event_id, (select event_id from receipt where n = 2), 'oml_append takes it for the same request'
);
select results_eq(
  $$ select pg_temp.name_of(tenant_id), seq
     from oml_append_batch('[
       {"type": "note.added", "tenant": "globex", "payload": {"text": "5"}, "idempotency_key": "five"},
       {"type": "note.added", "tenant": "globex", "payload": {"text": "6"}},
       {"type": "note.added", "tenant": "globex", "payload": {"text": "5"}, "idempotency_key": "five"},
       {"type": "note.added", "tenant": "initech", "payload": {"text": "5"}, "idempotency_key": "five"},
       {"type": "note.added", "tenant": "globex", "payload": {"text": "6"}}
     ]') $$,
  $$ values ('globex', 4::bigint), ('globex', 5), ('globex', 4), ('initech', 4), ('globex', 6) $$,
  'a key that stands twice in a batch is one request, in its own tenant'
);
select pg_temp.refused(
  format('select oml_append_batch(%L)', batch), 'OM014', message, 'A key stands for one request.%', why
)
from (values
  ('[{"type": "note.added", "tenant": "globex", "payload": {"text": "7"}},
     {"type": "note.added", "tenant": "globex", "payload": {"text": "other"}, "idempotency_key": "five"}]',
   'event 2 of the batch: idempotency key ''five'' was used for another request', 'a key of another request'),
  ('[{"type": "note.added", "tenant": "globex", "payload": {"text": "8"}, "idempotency_key": "new"},
     {"type": "note.added", "tenant": "globex", "payload": {"text": "9"}, "idempotency_key": "new"}]',
   'event 2 of the batch: idempotency key ''new'' was used for another request', 'a key of two requests in one batch')
) r (batch, message, why);

-- A key is its principal's.
reset session authorization;
set session authorization desk;
select results_eq(
  $$ select seq from oml_append_batch('[{"type": "note.added", "tenant": "globex", "payload": {"text": "5"}, "idempotency_key": "five"}]') $$,
  'values (7::bigint)', format('another principal''s key stands for a request of its own%s', again)
)
from unnest(array['', ', when it is repeated too']) again;
reset session authorization;
set session authorization clerk;
select results_eq(
  $$ select seq from oml_append_batch('[{"type": "note.added", "tenant": "globex", "payload": {"text": "5"}, "idempotency_key": "five"}]') $$,
  'values (4::bigint)', 'and leaves the first one''s as it was'
);

-- A type that was retired since refuses new events and answers old requests; state is folded in order.
select results_eq(
  $$ select n, pg_temp.name_of(tenant_id), seq from oml_append_batch('[
       {"type": "note.judged", "tenant": "globex", "payload": {"n": 1}, "entity_type": "thing", "entity_id": "a"},
       {"type": "note.gone", "tenant": "globex", "payload": {"n": 1}, "idempotency_key": "gone"},
       {"type": "note.judged", "tenant": "globex", "payload": {"n": 2}, "entity_type": "thing", "entity_id": "a"},
       {"type": "note.judged", "tenant": "globex", "payload": {}, "entity_type": "thing", "entity_id": "b"}
     ]') with ordinality r (tenant_id, seq, event_id, hash, n) $$,
  $$ values (1::bigint, 'globex', 8::bigint), (2, 'globex', 9), (3, 'globex', 10), (4, 'globex', 11) $$, 'types with schemas and state go in a batch too'
);
select results_eq(
  $$ select last_seq, event_count, state from oml_entity('thing', 'a', 'globex') $$, $$ values (10::bigint, 2::bigint, '{"n": 2}'::jsonb) $$,
  'an entity that is named twice in a batch has the state of its last event'
);
reset session authorization;
select oml_retire_event_type('note.gone');
select is_empty('select * from oml_fold_check()', 'the fold agrees with the journal');
set session authorization clerk;
select results_eq(
  $$ select n, seq from oml_append_batch('[
       {"type": "note.added", "tenant": "globex", "payload": {"text": "11"}},
       {"type": "note.gone", "tenant": "globex", "payload": {"n": 1}, "idempotency_key": "gone"}
     ]') with ordinality r (tenant_id, seq, event_id, hash, n) $$,
  $$ values (1::bigint, 12::bigint), (2, 9) $$, 'a request from before its type was retired is answered'
);

-- All or nothing: what oml_append refuses, the batch refuses, with the same words.
create temporary table bad (why text, event jsonb);
insert into bad values
  ('another''s tenant', '{"type": "note.added", "tenant": "acme", "payload": {"text": ""}}'),
  ('no tenant', '{"type": "note.added", "payload": {"text": ""}}'),
  ('an unknown type', '{"type": "note.lost", "tenant": "globex", "payload": {"text": ""}}'),
  ('no type', '{"tenant": "globex", "payload": {"text": ""}}'),
  ('a reserved type', '{"type": "key.issued", "tenant": "globex", "payload": {"kid": "", "public_key": "", "algorithm": "", "purpose": ""}}'),
  ('an unknown version', '{"type": "note.added", "tenant": "globex", "payload": {"text": ""}, "schema_version": 3}'),
  ('no payload', '{"type": "note.added", "tenant": "globex"}'),
  ('a payload that is no object', '{"type": "note.added", "tenant": "globex", "payload": [1]}'),
  ('a payload that lacks a key', '{"type": "note.added", "tenant": "globex", "payload": {"txt": ""}}'),
  ('a payload that is too large', '{"type": "note.empty", "tenant": "globex", "payload": {"text": ""}}'),
  ('a payload that violates its schema', '{"type": "note.judged", "tenant": "globex", "payload": {"n": "x"}}'),
  ('a retired type', '{"type": "note.gone", "tenant": "globex", "payload": {"n": 2}}'),
  ('half an entity', '{"type": "note.added", "tenant": "globex", "payload": {"text": ""}, "entity_type": "note"}'),
  ('long claims', jsonb_build_object('type', 'note.added', 'tenant', 'globex', 'payload', '{"text": ""}'::jsonb, 'operation', repeat('x', 2049)));
create function pg_temp.single(event jsonb)
returns pg_temp.refusal
language sql
as $$
  select pg_temp.refusal_of(format(
    'select oml_append(%L, %L, %L, schema_version => %L, operation => %L, entity_type => %L, idempotency_key => %L)',
    event ->> 'type', event -> 'payload', event ->> 'tenant', event ->> 'schema_version', event ->> 'operation', event ->> 'entity_type', event ->> 'idempotency_key'
  ))
$$;
select pg_temp.refused(
  format('select oml_append_batch(%L)', jsonb_build_array('{"type": "note.added", "tenant": "initech", "payload": {"text": ""}}'::jsonb, event)),
  s.sqlstate, 'event 2 of the batch: ' || s.message, s.hint, why
)
from bad, pg_temp.single(event) s;
select isnt(s.sqlstate, null, format('%s is refused by oml_append', why)) from bad, pg_temp.single(event) s;

-- Batches that are none.
select pg_temp.refused(
  format('select oml_append_batch(%L)', batch), code, message, hint, why
)
from (values
  (null, 'OM110', 'a batch is a JSON array of events, not null', 'Pass %', 'nothing'),
  ('{}', 'OM110', 'a batch is a JSON array of events, not a JSON object', 'Pass %', 'an object'),
  ('[[]]', 'OM112', 'event 1 of the batch is not understood: it is a JSON array', 'An event is %', 'an array in an array'),
  ('[null]', 'OM112', 'event 1 of the batch is not understood: it is a JSON null', 'An event is %', 'null in it'),
  ('[{"type": "note.added", "payload": {}, "tenent": "globex", "to": 1}]', 'OM112',
   'event 1 of the batch is not understood: it has the unknown key "to", "tenent"', 'An event is %: tenant, idempotency_key%', 'an unknown key'),
  ('[{"type": "note.added", "payload": {}, "principal": "eve"}]', 'OM112',
   'event 1 of the batch is not understood: it has the unknown key "principal"', 'An event is %', 'what the session proves'),
  ('[{"type": "note.added", "payload": {}, "tenant": 7}]', 'OM112', 'event 1 of the batch is not understood: a claim is no string', 'An event is %', 'a number for a name'),
  ('[{"type": "note.added", "payload": {}, "caused_by": "x"}]', 'OM112', 'event 1 of the batch is not understood: caused_by is no UUID', 'An event is %', 'a cause that is no UUID'),
  ('[{"type": "note.added", "payload": {}, "schema_version": 1.5}]', 'OM112', 'event 1 of the batch is not understood: schema_version is no whole number', 'An event is %', 'half a version'),
  ('[{"type": "note.added", "payload": {}, "schema_version": "x"}]', 'OM112', 'event 1 of the batch is not understood: schema_version is no whole number', 'An event is %', 'a version in words')
) r (batch, code, message, hint, why);
select pg_temp.refused(
  $$ select oml_append_batch((select jsonb_agg('{"type": "note.added", "tenant": "globex", "payload": {"text": ""}}'::jsonb) from generate_series(1, 10001))) $$,
  'OM111', format('a batch of 10001 events and %s bytes', octet_length((
    select jsonb_agg('{"type": "note.added", "tenant": "globex", "payload": {"text": ""}}'::jsonb) from generate_series(1, 10001)
  )::text)), 'A batch has at most 10000 events and 67108864 bytes%', 'more than 10,000 events'
);
create temporary table large as
select jsonb_build_array(jsonb_build_object('type', 'note.added', 'tenant', 'globex', 'payload', jsonb_build_object('text', repeat('x', 64 * 1024 * 1024)))) as batch;
select cmp_ok(pg_column_size(batch), '<', 1024 * 1024, 'compressed it is small') from large;
select pg_temp.refused(
  'select oml_append_batch(batch) from large', 'OM111', format('a batch of 1 events and %s bytes', 64 * 1024 * 1024 + octet_length(
    '[{"type": "note.added", "tenant": "globex", "payload": {"text": ""}}]'
  )), 'A batch has at most 10000 events and 67108864 bytes%', 'more than 64 MiB'
);
select is((select count(*) from oml_append_batch('[]')), 0::bigint, 'an empty batch is none');
set session authorization drifter;
select pg_temp.refused(
  $$ select oml_append_batch('[{"type": "note.added", "payload": {"text": ""}}]') $$, 'OM001',
  'event 1 of the batch: login drifter is bound to no tenant it may append to', '%An operator binds it%', 'a login that is bound to nothing'
);
reset session authorization;
select pg_temp.refused(
  $$ do $do$ begin set local transaction_read_only = on; perform oml_append_batch('[]'); end $do$ $$, 'OM051',
  'the transaction is read-only: nothing can be appended in it', 'Begin it READ WRITE%', 'a read-only transaction'
);

-- Under oml_use.
set session authorization clerk;
savepoint before;
select oml_use('initech', 'ada');
select is(
  (select array_agg(pg_temp.name_of(tenant_id)) from oml_append_batch('[{"type": "note.added", "payload": {"text": ""}}, {"type": "note.empty", "payload": {}}]')),
  '{initech,initech}', 'oml_use chooses for the batch'
);
select pg_temp.refused(
  $$ select oml_append_batch('[{"type": "note.added", "tenant": "globex", "payload": {"text": ""}}]') $$, 'OM135',
  'event 1 of the batch: login clerk may not act as principal ''ada''', 'It may act as: clerk.', 'its principal counts in every tenant'
);
rollback to before;
set session authorization boss;
select oml_impersonate('globex', 'clerk', 'ticket 7') as session \gset
select oml_use(impersonation => :'session');
select results_eq(
  $$ select j.principal, j.writer, j."authorization", j.impersonation::jsonb ->> 'reason'
     from oml_append_batch('[{"type": "note.added", "payload": {"text": ""}}]') r, pg_temp.journal() j where j.event_id = r.event_id $$,
  $$ values ('clerk', 'boss', 'impersonation:append', 'ticket 7') $$, 'and so does an impersonation'
);
reset session authorization;

select bag_eq(
  $$ select ok from unnest(array['globex', 'initech', 'provider']) name, oml_verify_chain(name) $$, 'values (true), (true), (true)', 'the chains verify'
);

select * from finish();
rollback;
