-- One key, one request: a client that lost its receipt may ask again.
begin;
\ir shared/refused.sql
select plan(67);

create role clerk login in role oml_writer;
create role colleague login in role oml_writer;
create role stand_in login in role oml_writer;
select oml_create_tenant('globex');
select oml_create_tenant('initech');
select oml_grant('clerk', 'globex');
select oml_grant('clerk', 'initech');
select oml_grant('colleague', 'globex');
select oml_grant('stand_in', 'globex', principal => 'clerk');
select oml_register_event_type('invoice.exported');
select oml_register_event_type('invoice.exported', 2);
select oml_register_event_type('invoice.paid');

set session authorization clerk;
create temporary table first_receipt as
select * from oml_append('invoice.exported', '{"a": 1, "b": [2.50, null]}', tenant => 'globex', idempotency_key => 'order 7');
grant select on first_receipt to colleague, stand_in;
select pg_temp.stored() as stored \gset

select results_eq(
  $$ select * from oml_append('invoice.exported', '{"a": 1, "b": [2.50, null]}', tenant => 'globex', idempotency_key => 'order 7') $$,
  'select * from first_receipt',
  'the same key with the same request returns the first receipt'
);
select results_eq(
  $$ select * from oml_append('invoice.exported', '{  "b":[2.50,null],"a":1}', tenant => 'globex', idempotency_key => 'order 7') $$,
  'select * from first_receipt',
  'the order of keys and white space do not make another request'
);
reset session authorization;
select oml_register_event_type('invoice.exported', 3);
select pg_temp.stored() as stored \gset
set session authorization clerk;
select results_eq(
  $$ select * from oml_append('invoice.exported', '{"a": 1, "b": [2.50, null]}', tenant => 'globex', idempotency_key => 'order 7') $$,
  'select * from first_receipt',
  'a version registered since does not make another request'
);
select is(pg_temp.stored(), :'stored', 'a repeated request stores nothing and draws no outbox number');

select pg_temp.refused(
  format($$ select oml_append(type => %L, payload => %L, tenant => 'globex', idempotency_key => 'order 7' %s) $$, type, payload, claim),
  'OM014', 'idempotency key ''order 7'' was used for another request (seq 2)', '%Retry with the same content, or take a new key.',
  format('the same key with %s is refused', difference)
)
from (values
  ('another payload', 'invoice.exported', '{"a": 2, "b": [2.50, null]}', ''),
  ('a number written to other precision', 'invoice.exported', '{"a": 1, "b": [2.5, null]}', ''),
  ('an empty payload', 'invoice.exported', '{}', ''),
  ('another type', 'invoice.paid', '{"a": 1, "b": [2.50, null]}', ''),
  ('a named version', 'invoice.exported', '{"a": 1, "b": [2.50, null]}', ', schema_version => 1'),
  ('an operation', 'invoice.exported', '{"a": 1, "b": [2.50, null]}', ', operation => '''''),
  ('an app_version', 'invoice.exported', '{"a": 1, "b": [2.50, null]}', ', app_version => ''1'''),
  ('a cause', 'invoice.exported', '{"a": 1, "b": [2.50, null]}', ', caused_by => ''0190f3c8-0000-7000-8000-000000000001'''),
  ('an invocation', 'invoice.exported', '{"a": 1, "b": [2.50, null]}', ', invocation_id => ''1'''),
  ('an entity', 'invoice.exported', '{"a": 1, "b": [2.50, null]}', ', entity_type => ''1'', entity_id => ''1'''),
  ('the empty entity', 'invoice.exported', '{"a": 1, "b": [2.50, null]}', ', entity_type => '''', entity_id => '''''),
  ('a subject', 'invoice.exported', '{"a": 1, "b": [2.50, null]}', ', subject_id => ''1''')
) as r (difference, type, payload, claim);

-- Fields do not run into each other.
select lives_ok(
  $$ select oml_append('invoice.paid', '{}', tenant => 'globex', idempotency_key => 'order 8', operation => 'x', app_version => '') $$,
  'a request of two claims is taken'
);
select pg_temp.refused(
  $$ select oml_append('invoice.paid', '{}', tenant => 'globex', idempotency_key => 'order 8', operation => '', app_version => 'x') $$,
  'OM014', 'idempotency key ''order 8'' was used for another request (seq 3)', '%take a new key.',
  'the same text in another claim is another request'
);

-- Scope.
select results_eq(
  $$ select seq from oml_append('invoice.paid', '{"other": true}', tenant => 'initech', idempotency_key => 'order 7') $$,
  'values (2::bigint)', 'the same key in another tenant is another key'
);
reset session authorization;
set session authorization colleague;
select results_eq(
  $$ select seq from oml_append('invoice.paid', '{"other": true}', idempotency_key => 'order 7') $$,
  'values (4::bigint)', 'the same key of another principal is another key'
);
reset session authorization;
set session authorization stand_in;
select results_eq(
  $$ select * from oml_append('invoice.exported', '{"a": 1, "b": [2.50, null]}', idempotency_key => 'order 7') $$,
  'select * from first_receipt', 'two logins that act for one principal share its keys'
);
reset session authorization;

-- Form of a key.
set session authorization clerk;
select results_eq(
  $$ select r.seq
     from unnest(array['ORDER 7', 'order 7 ', '', null, null]) k,
       oml_append('invoice.paid', '{}', tenant => 'globex', idempotency_key => k) r $$,
  'values (5::bigint), (6), (7), (8), (9)', 'keys are compared byte by byte, and no key is never the same key'
);
select is(
  (oml_append('invoice.paid', '{}', tenant => 'globex', idempotency_key => '')).seq, 7::bigint,
  'the empty key is a key'
);
reset session authorization;

-- The longest key and principal there can be, of text that does not compress.
create role talker login in role oml_writer;
select string_agg(md5(i::text), '') as noise from generate_series(1, 64) i \gset
select oml_grant('talker', 'globex', principal => left(:'noise', 256));
set session authorization talker;
select is(
  array(select (oml_append('invoice.paid', '{}', idempotency_key => :'noise')).seq from generate_series(1, 2)),
  array[10, 10]::bigint[], 'a key of 2048 bytes beside a principal of 256 finds its first receipt'
);
reset session authorization;

-- A retry is the same call, whatever has become of its type.
reset session authorization;
select oml_register_event_type('order.placed');
set session authorization clerk;
create temporary table placed as select * from oml_append('order.placed', '{"n": 1}', tenant => 'globex', idempotency_key => 'order 10');
reset session authorization;
select oml_register_event_type('order.placed', 2, required_keys => '{m}');
select pg_temp.stored() as stored \gset
set session authorization clerk;
select results_eq(
  $$ select * from oml_append('order.placed', '{"n": 1}', tenant => 'globex', idempotency_key => 'order 10') $$, 'select * from placed',
  'a version that asks for more returns the first receipt'
);
reset session authorization;
select oml_register_event_type('order.placed', 3, 'false');
select pg_temp.stored() as stored \gset
set session authorization clerk;
select results_eq(
  $$ select * from oml_append('order.placed', '{"n": 1}', tenant => 'globex', idempotency_key => 'order 10') $$, 'select * from placed',
  'one whose schema takes nothing'
);
reset session authorization;
select oml_retire_event_type('order.placed');
select pg_temp.stored() as stored \gset
set session authorization clerk;
select results_eq(
  $$ select * from oml_append('order.placed', '{"n": 1}', tenant => 'globex', idempotency_key => 'order 10') $$, 'select * from placed',
  'and a type that is retired'
);
select is(pg_temp.stored(), :'stored', 'and stores nothing');
select pg_temp.refused(
  $$ select oml_append('order.placed', '{"n": 2}', tenant => 'globex', idempotency_key => 'order 10') $$,
  'OM014', 'idempotency key ''order 10'' was used for another request (seq 11)', '%take a new key.', 'another request of a retired type is another request'
);
select pg_temp.refused(
  $$ select oml_append('order.placed', '{"n": 1}', tenant => 'globex', idempotency_key => 'order 11') $$,
  'OM081', 'event type ''order.placed'' is retired', '%', 'a new key does not revive a retired type'
);
select pg_temp.refused(
  $$ select oml_append('order.placed', '{"n": 1}', tenant => 'initech', idempotency_key => 'order 10') $$,
  'OM081', 'event type ''order.placed'' is retired', '%', 'nor does a key of another tenant'
);

-- An undone request never used its key.
set session authorization clerk;
savepoint before;
select lives_ok(
  $$ select oml_append('invoice.paid', '{"try": 1}', tenant => 'globex', idempotency_key => 'order 9') $$, 'a key is used'
);
rollback to before;
select lives_ok(
  $$ select oml_append('invoice.paid', '{"try": 2}', tenant => 'globex', idempotency_key => 'order 9') $$,
  'and free again once that append was rolled back'
);
reset session authorization;

select is((select count(*) from oml.journal where idempotency_key = 'order 7'), 3::bigint, 'one key gave one event in each scope');
select ok((select ok from oml_verify_chain('globex')), 'the chain verifies');

select * from finish();
rollback;
