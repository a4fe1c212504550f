-- The event catalogue: versions are added, never changed, and the provider chain tells when.
begin;
\ir shared/refused.sql
select plan(226);

create role operator login in role oml_operator;
select oml_grant('operator', 'provider', '{operate}');
select value as deployment from oml.setting where name = 'deployment_id' \gset
select max(seq) as head from oml.journal where tenant_id = :'deployment' \gset

set session authorization operator;
select oml_register_event_type('invoice.exported');
select oml_register_event_type(
  'invoice.exported', 2, '{"type":"object"}', '{bronze.events}', 'contact', state_keys => '{status}',
  required_keys => '{invoice,amount}', max_bytes => 100, description => 'An invoice left.'
);
reset session authorization;
select results_eq(
  $$ select schema_version, json_schema, schema_digest, targets, pii_class, state_keys, required_keys, max_bytes, reserved, description, retired_at
     from oml.event_type where type = 'invoice.exported' order by schema_version $$,
  $$ values
    (1, null::jsonb, null::bytea, '{bronze.events}'::text[], 'none', '{}'::text[], '{}'::text[], 4096, false, '', null::timestamptz),
    (2, '{"type": "object"}', sha256('{"type": "object"}'), '{bronze.events}', 'contact', '{status}', '{invoice,amount}', 100, false,
     'An invoice left.', null) $$,
  'a type has version 1, no schema, no state, no required keys, 4096 bytes and no personal data unless said otherwise'
);
select results_eq(
  format(
    'select seq, type, principal, "authorization", payload from oml.journal where tenant_id = %L and seq > %s order by seq',
    :'deployment', :'head'
  ),
  format(
    $$ values
      (%s::bigint, 'event-type.registered', 'operator', 'membership:operate',
       '{"type": "invoice.exported", "schema_version": 1, "json_schema": null, "schema_digest": null, "targets": ["bronze.events"],
         "pii_class": "none", "state_keys": [], "required_keys": [], "max_bytes": 4096, "description": ""}'::jsonb),
      (%s, 'event-type.registered', 'operator', 'membership:operate',
       '{"type": "invoice.exported", "schema_version": 2, "json_schema": {"type": "object"},
         "schema_digest": "%s", "targets": ["bronze.events"], "pii_class": "contact", "state_keys": ["status"],
         "required_keys": ["invoice", "amount"], "max_bytes": 100, "description": "An invoice left."}') $$,
    :'head' + 1, :'head' + 2, encode(sha256('{"type": "object"}'), 'hex')
  ),
  'each registration is an event of the provider chain, with all that was registered'
);

-- OM018.
set session authorization operator;
select pg_temp.refused(
  $$ select oml_register_event_type('invoice.exported', 2, max_bytes => 200) $$,
  'OM018', 'event type ''invoice.exported'' version 2 is registered already', '%register the next one.',
  'a registered version never changes'
);

-- OM019.
select pg_temp.refused(
  format('select oml_register_event_type(%s)', arguments), 'OM019',
  format('event type %s cannot be registered: %s', coalesce(quote_literal(type), 'NULL'), reason),
  '%dotted lower case%versions count from 1; max_bytes lies between 2 and 1048576.',
  format('a type is refused: %s', name)
)
from (
  select
    c.name, c.type, format('%L%s', c.type, c.more),
    case c.violated when 'null' then 'null value in column "' || c.subject || '" of relation "event_type" violates not-null constraint'
      else 'new row for relation "event_type" violates check constraint "event_type_' || c.subject || '_check"' end
  from (values
    ('no name', null, '', 'null', 'type'),
    ('a name without a dot', 'exported', '', 'check', 'type'),
    ('upper case', 'Invoice.exported', '', 'check', 'type'),
    ('a space', 'invoice exported.x', '', 'check', 'type'),
    ('a leading digit', '1nvoice.exported', '', 'check', 'type'),
    ('an empty part', 'invoice..exported', '', 'check', 'type'),
    ('a line break', E'invoice.exported\n', '', 'check', 'type'),
    ('129 bytes', 'i.' || repeat('x', 127), '', 'check', 'type'),
    ('version 0', 'invoice.paid', ', 0', 'check', 'schema_version'),
    ('no version', 'invoice.paid', ', null', 'null', 'schema_version'),
    ('a limit of 1 byte', 'invoice.paid', ', max_bytes => 1', 'check', 'max_bytes'),
    ('a limit over 1 MiB', 'invoice.paid', ', max_bytes => 1048577', 'check', 'max_bytes'),
    ('no limit', 'invoice.paid', ', max_bytes => null', 'null', 'max_bytes'),
    ('no list of keys', 'invoice.paid', ', required_keys => null', 'null', 'required_keys'),
    ('a key that is null', 'invoice.paid', ', required_keys => ''{a,NULL}''', 'check', 'required_keys'),
    ('an empty class', 'invoice.paid', ', pii_class => ''''', 'check', 'pii_class'),
    ('no list of state keys', 'invoice.paid', ', state_keys => null', 'null', 'state_keys'),
    ('a state key that is null', 'invoice.paid', ', state_keys => ''{a,NULL}''', 'check', 'state_keys'),
    ('no description', 'invoice.paid', ', description => null', 'null', 'description')
  ) as c (name, type, more, violated, subject)
) as refused (name, type, arguments, reason);
select lives_ok(format('select oml_register_event_type(%L, max_bytes => %s)', type, max_bytes), format('a type is taken: %s', name))
from (values
  ('128 bytes', 'i.' || repeat('x', 126), 4096), ('many parts', 'a.b-c.d_e.0', 4096),
  ('the smallest limit', 'invoice.opened', 2), ('the largest limit', 'invoice.closed', 1048576)
) t (name, type, max_bytes);

-- OM015: the deployment's own names.
select pg_temp.refused(
  format('select oml_register_event_type(%L, 9)', type), 'OM015',
  format('event type %L lies in a namespace reserved for the deployment', type),
  'key., tenant., membership., impersonation., event-type., journal., database., workarea., submission., review., artifact. and oml. are taken.', format('%s cannot be registered', type)
)
from unnest(array[
  'key.issued', 'key.retired', 'tenant.genesis', 'tenant.created', 'tenant.suspended', 'membership.granted',
  'membership.revoked', 'event-type.registered', 'oml.anything'
]) as type;
select lives_ok(
  format('select oml_register_event_type(%L)', type), format('%s is nobody''s namespace', type)
)
from unnest(array['keys.issued', 'tenants.created', 'omlet.made']) as type;

-- OM082: what is no schema of our dialect, or leads out of itself.
select pg_temp.refused(
  format('select oml_register_event_type(%L, json_schema => %L)', 'invoice.paid', schema), 'OM082',
  format('the schema of event type ''invoice.paid'' cannot be registered: %s', fault),
  'A schema is JSON Schema 2020-12, refers only to itself and has up to 32768 bytes.', format('refused is a schema that %s', name)
)
from (values
  ('is a list', '[]', 'it is neither an object nor a boolean'), ('is a string', '"object"', 'it is neither an object nor a boolean'),
  ('is a JSON null', 'null', 'it is neither an object nor a boolean'),
  ('names an unknown type', '{"properties": {"a": {"type": "money"}}}',
    '/properties/a/type: ''money'' is not valid under any of the given schemas'),
  ('has a pattern that does not compile', '{"properties": {"a": {"pattern": "("}}}', '/properties/a/pattern: ''('' is not a ''regex'''),
  ('has a wrong keyword value', '{"required": "a"}', '/required: ''a'' is not of type ''array'''),
  ('refers to the web', '{"properties": {"a": {"$ref": "https://acme.example/s"}}}',
    '$ref https://acme.example/s leads out of it: a reference begins with #'),
  ('refers to a file', '{"items": [], "$defs": {"x": {"$ref": "file:///etc/passwd"}}}',
    '$ref file:///etc/passwd leads out of it: a reference begins with #'),
  ('refers beside itself', '{"allOf": [{"$ref": "other.json"}]}', '$ref other.json leads out of it: a reference begins with #'),
  ('refers out dynamically', '{"not": {"$dynamicRef": "//acme.example#a"}}',
    '$dynamicRef //acme.example#a leads out of it: a reference begins with #'),
  ('refers to the dialect''s own', '{"$ref": "https://json-schema.org/draft/2020-12/schema"}',
    '$ref https://json-schema.org/draft/2020-12/schema leads out of it: a reference begins with #'),
  ('refers to nothing', '{"$ref": "#/$defs/a"}', '$ref #/$defs/a leads nowhere'),
  ('refers to no schema', '{"type": "object", "$ref": "#/type"}', '$ref #/type does not lead to a schema'),
  ('refers to itself', '{"$ref": "#"}', 'it refers to itself without end'),
  ('is of another draft', '{"$schema": "http://json-schema.org/draft-07/schema#"}',
    '$schema http://json-schema.org/draft-07/schema# is not https://json-schema.org/draft/2020-12/schema'),
  ('changes draft inside', '{"$defs": {"a": {"$schema": "https://json-schema.org/draft/2020-12/schema"}}}', '$schema stands below its top'),
  ('changes its base inside', '{"$defs": {"a": {"$id": "https://acme.example/a"}}}', '$id stands below its top'),
  ('is nested too deeply', repeat('{"items": ', 900) || '{}' || repeat('}', 900), 'it is nested too deeply'),
  ('is too long', jsonb_build_object('description', repeat('x', 32750))::text, 'it has 32769 bytes, a schema may have 32768')
) s (name, schema, fault);
select lives_ok(
  format('select oml_register_event_type(%L, %s, %L)', 'schema.taken', row_number() over (), schema), format('taken is %s', name)
)
from (values
  ('an empty schema', '{}'), ('a schema that takes all', 'true'), ('a schema that takes nothing', 'false'),
  ('a schema that names its draft and itself', '{"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://acme.example/a"}'),
  ('a schema that refers to its own parts',
    '{"$defs": {"a": {"$anchor": "x", "type": "string"}}, "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"$ref": "#x"}}}'),
  ('a schema of trees', '{"$dynamicAnchor": "node", "properties": {"children": {"items": {"$dynamicRef": "#node"}}}}'),
  ('a schema of properties that are called as keywords', '{"properties": {"$ref": {"type": "string"}, "$id": {}, "$schema": {}, "pattern": {}}}'),
  ('a schema of numbers out of all bounds', '{"maximum": 1e5000, "minimum": -1e5000, "multipleOf": 1e-5000}'),
  ('a schema of 32768 bytes', jsonb_build_object('description', repeat('x', 32749))::text)
) s (name, schema);
reset session authorization;
select results_eq(
  format($$ select payload -> 'json_schema', payload ->> 'schema_digest' from oml.journal
    where tenant_id = %L and payload ->> 'type' = 'schema.taken' order by seq desc limit 1 $$, :'deployment'),
  $$ select json_schema, encode(schema_digest, 'hex') from oml.event_type where type = 'schema.taken' order by schema_version desc limit 1 $$,
  'the longest schema is journalled whole'
);
set session authorization operator;

-- OM083, OM084.
select pg_temp.refused(
  format('select oml_register_event_type(%L, targets => %L)', 'invoice.paid', targets), 'OM083',
  format('%L are not targets of an event type', targets), 'Lake tables, each once and bronze.events among them; this version has: bronze.events.',
  format('%s is refused as targets', coalesce(targets::text, 'null'))
)
from (values
  (null::text[]), ('{}'), ('{silver.claims}'), ('{bronze.events,silver.claims}'), ('{bronze.events,bronze.events}'), ('{bronze.events,NULL}')
) t (targets);
select pg_temp.refused(
  format('select oml_register_event_type(%L, description => %L)', 'invoice.paid', repeat('x', 65536)), 'OM084',
  'the registration of event type ''invoice.paid'' has 65753 bytes, at most 65536 are journalled', '%Shorten%', 'what cannot be journalled is refused'
);

-- Retiring.
reset session authorization;
select max(seq) as head from oml.journal where tenant_id = :'deployment' \gset
set session authorization operator;
select oml_register_event_type('order.placed', v) from generate_series(1, 3) v;
select is(oml_retire_event_type('order.placed', 2), true, 'a version is retired');
select is(oml_retire_event_type('order.placed', 2), false, 'once');
select is(oml_retire_event_type('order.placed'), true, 'all other versions are');
select is(oml_retire_event_type('order.placed'), false, 'once');
select is(oml_retire_event_type('order.placed', 3), false, 'and none of them again');
reset session authorization;
select results_eq(
  format(
    $$ select type, principal, "authorization", payload from oml.journal where tenant_id = %L and seq > %s order by seq $$, :'deployment', :head + 3
  ),
  $$ values ('event-type.retired', 'operator', 'membership:operate', '{"type": "order.placed", "schema_versions": [2]}'::jsonb),
       ('event-type.retired', 'operator', 'membership:operate', '{"type": "order.placed", "schema_versions": [1, 3]}') $$,
  'each retirement is an event of the provider chain, and what changes nothing is none'
);
select ok(bool_and(retired_at is not null), 'the catalogue knows since when') from oml.event_type where type = 'order.placed';
set session authorization operator;
select lives_ok($$ select oml_register_event_type('order.placed', 4) $$, 'a retired type can have a next version');
select pg_temp.refused(
  $$ select oml_register_event_type('order.placed', 3) $$, 'OM018', 'event type ''order.placed'' version 3 is registered already', '%next one.',
  'but not the same again'
);
select pg_temp.refused(
  format('select oml_retire_event_type(%L, %L::int)', type, version), 'OM010',
  format('event type %L%s is not registered', type, ' version ' || version), '%oml_register_event_type(%',
  format('%s cannot be retired', coalesce(type, 'nothing'))
)
from (values ('order.lost', null::int), ('order.placed', 5), (null, null)) t (type, version);
select pg_temp.refused(
  format('select oml_retire_event_type(%L)', type), 'OM015', format('event type %L lies in a namespace reserved for the deployment', type), '%are taken.',
  format('the reserved type %s is never retired', type)
)
from unnest(array['key.issued', 'event-type.retired', 'oml.anything']) type;
reset session authorization;

-- Of a registered row only retired_at changes, once and never back.
select throws_ok(
  format('update oml.event_type set %s where type = ''order.placed'' and schema_version = %s', change, version), 'OM060',
  'UPDATE on oml.event_type is refused: it is append-only', format('an update of %s is refused', change)
)
from (values
  ('retired_at = null', 3), ('retired_at = now()', 3), ('retired_at = retired_at', 4), ('max_bytes = 9', 4),
  ('retired_at = now(), max_bytes = 9', 4), ('retired_at = now(), json_schema = ''null''', 4), ('json_schema = ''null''', 4),
  ('retired_at = now(), required_keys = ''{a}''', 4), ('retired_at = now(), schema_version = 5', 4)
) c (change, version);
set session_replication_role = replica;
select throws_ok(
  'update oml.event_type set max_bytes = 9', 'OM060', null, 'also under session_replication_role = replica'
);
reset session_replication_role;
select lives_ok(
  $$ update oml.event_type set retired_at = now() where type = 'order.placed' and schema_version = 4 $$, 'retired_at is set'
);

select ok(bool_and(reserved), 'every type in those namespaces is reserved')
from oml.event_type where split_part(type, '.', 1) in ('key', 'tenant', 'membership', 'event-type', 'oml');

select ok((select ok from oml_verify_chain('provider')), 'the provider chain verifies');

select * from finish();
rollback;
