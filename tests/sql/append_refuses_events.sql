-- What may be appended: the event catalogue decides, and a refusal says what to change.
begin;
\ir shared/refused.sql
select plan(182);

create role clerk login in role oml_writer;
select oml_create_tenant('globex');
select oml_grant('clerk', 'globex');
select oml_register_event_type('invoice.exported');
select oml_register_event_type('invoice.paid', required_keys => '{invoice,amount,currency}');
select oml_register_event_type('invoice.paid', 2, required_keys => '{invoice}');
select oml_register_event_type('note.written', max_bytes => 64);
select oml_register_event_type('order.placed', 1);
select oml_register_event_type('order.placed', 2);
select oml_register_event_type('order.placed', 3, required_keys => '{never}');
select oml_retire_event_type('order.placed', 3);
select oml_register_event_type('order.lost');
select oml_retire_event_type('order.lost');
select oml_register_event_type('invoice.checked', 1, '{
  "type": "object", "required": ["invoice", "total"], "additionalProperties": false,
  "properties": {
    "invoice": {"type": "string", "pattern": "^INV-[0-9]+$", "maxLength": 12},
    "total": {"type": "number", "minimum": 0, "multipleOf": 0.01},
    "count": {"type": "integer"},
    "tags": {"type": "array", "uniqueItems": true, "items": {"type": "string"}},
    "by/name": {"additionalProperties": {"enum": ["a", "b"]}},
    "lines": {"type": "array", "unevaluatedItems": false, "prefixItems": [{}]},
    "tree": {"$ref": "#/$defs/tree"}
  },
  "$defs": {"tree": {"items": {"$ref": "#/$defs/tree"}}}
}', max_bytes => 1048576);
create function pg_temp.events() returns table (seq bigint, schema_version int) language sql security definer
as 'select j.seq, j.schema_version from oml.journal j join oml.tenant t using (tenant_id) where t.name = ''globex''';
set session authorization clerk;

-- OM010: not in the catalogue.
select pg_temp.refused(
  $$ select oml_append('invoice.lost', '{}') $$,
  'OM010', 'event type ''invoice.lost'' is not registered', '%oml_register_event_type(%',
  'an unregistered type is refused'
);
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}', schema_version => 7) $$,
  'OM010', 'event type ''invoice.exported'' version 7 is not registered', '%oml_register_event_type(%',
  'an unregistered version of a type is refused'
);
select pg_temp.refused(
  $$ select oml_append(null, '{}') $$,
  'OM010', 'event type NULL is not registered', '%oml_register_event_type(%',
  'no type is no registered type'
);

-- OM015: the deployment's own.
select pg_temp.refused(
  format('select oml_append(%L, %L)', type, '{"public_key": "00", "kid": "00", "tenant_id": "00", "name": "x"}'),
  'OM015', format('event type %L is reserved for the deployment itself', type), 'Register a type of your own.',
  format('the reserved type %s is refused', type)
)
from unnest(array[
  'key.issued', 'tenant.created', 'tenant.genesis',
  'membership.granted', 'membership.revoked', 'event-type.registered', 'event-type.retired'
]) as type;

-- OM011: not an object.
select pg_temp.refused(
  format('select oml_append(%L, %L::jsonb)', 'invoice.exported', payload),
  'OM011', format('the payload of invoice.exported is %s, not a JSON object', name), 'Pass an object%',
  format('a payload that is %s is refused', name)
)
from (values
  ('[]', 'a JSON array'), ('[{"a": 1}]', 'a JSON array'), ('"text"', 'a JSON string'), ('12', 'a JSON number'),
  ('true', 'a JSON boolean'), ('null', 'a JSON null'), (null, 'null')
) as p (payload, name);

-- OM012: keys its type requires.
select pg_temp.refused(
  $$ select oml_append('invoice.paid', '{}', schema_version => 1) $$,
  'OM012', 'the payload of invoice.paid lacks: invoice, amount, currency',
  'Version 1 of the type requires: invoice, amount, currency.',
  'a payload without any required key is refused with all their names'
);
select pg_temp.refused(
  $$ select oml_append('invoice.paid', '{"invoice": 7, "currency": "EUR", "Amount": 1}', schema_version => 1) $$,
  'OM012', 'the payload of invoice.paid lacks: amount', '%requires: invoice, amount, currency.',
  'a payload that lacks one key is refused with that name'
);
select pg_temp.refused(
  $$ select oml_append('invoice.paid', '{"body": {"invoice": 7, "amount": 1, "currency": "EUR"}}', schema_version => 1) $$,
  'OM012', 'the payload of invoice.paid lacks: invoice, amount, currency', '%requires: invoice, amount, currency.',
  'required keys count at the top level only'
);
select pg_temp.refused(
  $$ select oml_append('invoice.paid', '{"amount": 1}') $$,
  'OM012', 'the payload of invoice.paid lacks: invoice', 'Version 2 of the type requires: invoice.',
  'the newest version''s keys are required when none is named'
);
select lives_ok(
  $$ select oml_append('invoice.paid', '{"invoice": null}') $$,
  'a required key may hold a JSON null'
);
select lives_ok(
  $$ select oml_append('invoice.paid', '{"invoice": 7, "amount": 1, "currency": "EUR", "more": []}', schema_version => 1) $$,
  'a payload may have more keys than are required'
);

-- OM081: retired.
select lives_ok($$ select oml_append('order.placed', '{}') $$, 'a type of which one version is retired is taken');
select is((select schema_version from pg_temp.events() order by seq desc limit 1), 2, 'in its newest version that is not');
select lives_ok($$ select oml_append('order.placed', '{}', schema_version => 1) $$, 'an older one can be named');
select pg_temp.refused(
  format('select oml_append(%L, %L, schema_version => %L::int)', type, '{}', version), 'OM081',
  format('event type %L%s is retired', type, ' version ' || version), 'Its old events stay and verify.%', format('a retired %s is refused', name)
)
from (values ('type', 'order.lost', null::int), ('version', 'order.placed', 3), ('type''s version', 'order.lost', 1)) r (name, type, version);

-- OM080: the schema. No value of the payload is repeated, nor a key that the schema does not know.
select lives_ok(
  format('select oml_append(%L, %L)', 'invoice.checked', payload), format('%s is what the schema asks for', left(payload, 80))
)
from (values
  ('{"invoice": "INV-1", "total": 1.13}'), ('{"invoice": "INV-1", "total": 12345678901234567890123.25}'),
  ('{"invoice": "INV-1", "total": 0.00, "count": 3.0, "tags": ["a", "b"], "by/name": {"z": "a"}}'),
  ('{"invoice": "INV-1", "total": 1, "count": 1' || repeat('0', 9999) || ', "tree": ' || repeat('[', 50) || repeat(']', 50) || '}')
) p (payload);
select pg_temp.refused(
  format('select oml_append(%L, %L)', 'invoice.checked', payload), 'OM080',
  format('the payload of invoice.checked violates the schema of version 1: %s', violations), '%JSON Pointer%', name || ' violates the schema'
)
from (values
  ('nothing', '{}', 'the payload violates required ["invoice", "total"]'),
  ('a missing key', '{"invoice": "INV-1"}', 'the payload violates required ["total"]'),
  ('a wrong type', '{"invoice": 7, "total": 1}', '/invoice violates type "string"'),
  ('a text', '{"invoice": "secret", "total": 1}', '/invoice violates pattern "^INV-[0-9]+$"'),
  ('a long text', '{"invoice": "INV-12345678901234567890", "total": 1}', '/invoice violates maxLength 12'),
  ('a negative number', '{"invoice": "INV-1", "total": -1}', '/total violates minimum 0'),
  ('a fraction of a cent', '{"invoice": "INV-1", "total": 1.131}', '/total violates multipleOf 0.01'),
  ('a tiny fraction', '{"invoice": "INV-1", "total": 1e-16000}', '/total violates multipleOf 0.01'),
  ('a fraction where an integer is asked for', '{"invoice": "INV-1", "total": 1, "count": 1.5}', '/count violates type "integer"'),
  ('a huge fraction', '{"invoice": "INV-1", "total": 1, "count": 1' || repeat('0', 9999) || '.5}', '/count violates type "integer"'),
  ('an unknown key', '{"invoice": "INV-1", "total": 1, "secret": "x"}', 'the payload violates additionalProperties false'),
  ('a repeated item', '{"invoice": "INV-1", "total": 1, "tags": ["secret", "secret"]}', '/tags violates uniqueItems true'),
  ('a value below an unknown key', '{"invoice": "INV-1", "total": 1, "by/name": {"secret@acme.example": "x"}}', '/by~1name/* violates enum ["a", "b"]'),
  ('several things',
    '{"invoice": 7, "total": -0.001, "count": "x", "tags": "y"}',
    '/tags violates type "array"; /count violates type "integer"; /total violates minimum 0; and more'),
  ('what the library stumbles over', '{"invoice": "INV-1", "total": 1, "lines": [0, 1, "secret"]}',
    'its schema cannot be applied to it (TypeError)'),
  ('a deep tree', '{"invoice": "INV-1", "total": 1, "tree": ' || repeat('[', 900) || repeat(']', 900) || '}', 'it is nested too deeply for its schema'),
  ('a deeper tree', '{"invoice": "INV-1", "total": 1, "tree": ' || repeat('[', 3000) || repeat(']', 3000) || '}', 'it is nested too deeply for its schema')
) p (name, payload, violations);
select pg_temp.refused(
  $$ select oml_append('invoice.checked', '[]') $$, 'OM011', 'the payload of invoice.checked is a JSON array, not a JSON object', 'Pass an object%',
  'a payload is an object whatever its schema'
);

-- OM013: size, in bytes of the UTF-8 JSON text.
select lives_ok(
  format('select oml_append(%L, %L)', 'note.written', jsonb_build_object('text', repeat('x', 64 - 12))),
  'a payload of exactly the limit is taken'
);
select pg_temp.refused(
  format('select oml_append(%L, %L)', 'note.written', jsonb_build_object('text', repeat('x', 65 - 12))),
  'OM013', 'the payload of note.written has 65 bytes, its type allows 64', '%digest%max_bytes%',
  'a payload of one byte more is refused'
);
select lives_ok(
  format('select oml_append(%L, %L)', 'note.written', jsonb_build_object('text', repeat('é', 26))),
  'a payload of multi-byte characters of exactly the limit in bytes is taken'
);
select pg_temp.refused(
  format('select oml_append(%L, %L)', 'note.written', jsonb_build_object('text', repeat('é', 26) || 'x')),
  'OM013', 'the payload of note.written has 65 bytes, its type allows 64', '%digest%max_bytes%',
  'bytes count, not characters'
);
select pg_temp.refused(
  format('select oml_append(%L, %L)', 'note.written', jsonb_build_object('text', repeat('😀', 14))),
  'OM013', 'the payload of note.written has 68 bytes, its type allows 64', '%digest%max_bytes%',
  'a character outside the basic plane counts four bytes'
);
select lives_ok(
  format('select oml_append(%L, %L)', 'note.written', '   {  "text"  :  "' || repeat('x', 64 - 12) || '"  }   '),
  'white space outside the values counts as PostgreSQL prints it, not as it was written'
);
select lives_ok(
  format('select oml_append(%L, %L)', 'invoice.exported', jsonb_build_object('text', repeat('x', 4096 - 12))),
  'by default a type takes 4096 bytes'
);
select pg_temp.refused(
  format('select oml_append(%L, %L)', 'invoice.exported', jsonb_build_object('text', repeat('x', 4097 - 12))),
  'OM013', 'the payload of invoice.exported has 4097 bytes, its type allows 4096', '%digest%max_bytes%',
  'by default a type refuses 4097 bytes'
);
select pg_temp.refused(
  format('select oml_append(%L, %L)', 'invoice.exported', jsonb_build_object('text', repeat('x', 5000000))),
  'OM013', 'the payload of invoice.exported has 5000012 bytes, its type allows 4096', '%digest%max_bytes%',
  'a payload of megabytes is refused'
);

-- OM016: claims beside the payload.
select lives_ok(
  format(
    $$ select oml_append('invoice.exported', '{}', operation => %1$L, app_version => %1$L, invocation_id => %1$L,
         entity_type => %1$L, entity_id => %1$L, subject_id => %1$L, idempotency_key => %2$L) $$,
    repeat('x', 256), repeat('k', 512)
  ),
  'claims of 2048 bytes together are taken'
);
select lives_ok(
  format($$ select oml_append('invoice.exported', '{}', idempotency_key => %L) $$, repeat('k', 2048)),
  'one claim may use all of the 2048 bytes'
);
select pg_temp.refused(
  format('select oml_append(%L, %L, operation => %L, %s => %L)', 'invoice.exported', '{}', repeat('x', 1000), claim, repeat('y', 1049)),
  'OM016', 'the claims beside the payload are longer than 2048 bytes together', '%short names; content belongs in the payload.',
  format('operation and %s of 2049 bytes together are refused', claim)
)
from unnest(array['app_version', 'invocation_id', 'entity_type', 'entity_id', 'subject_id', 'idempotency_key']) as claim;
select pg_temp.refused(
  format('select oml_append(%L, %L, entity_id => %L)', 'invoice.exported', '{}', repeat('é', 1025)),
  'OM016', 'the claims beside the payload are longer than 2048 bytes together', '%short names; content belongs in the payload.',
  'claims are measured in bytes too'
);

-- JSON that is no JSON never reaches the journal.
select throws_ok(
  format('select oml_append(%L, %L::jsonb)', 'invoice.exported', text), state, null,
  format('%s is refused by the type jsonb', text)
)
from (values
  ('{"a": }', '22P02'), ('{"a": 1', '22P02'), ('{"a": "\u0000"}', '22P05'), ('{"a": "\ud800"}', '22P02'), ('', '22P02')
) as p (text, state);

select * from finish();
rollback;
