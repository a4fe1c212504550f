-- The event catalogue: versions are added, never changed, and the provider chain tells when.
begin;
\ir shared/refused.sql
select plan(92);

create role operator login in role oml_operator;
select oml_grant('operator', 'provider', '{operate}');
select value as deployment from oml.setting where name = 'deployment_id' \gset
select max(seq) as head from oml.journal where tenant_id = :'deployment' \gset

set session authorization operator;
select oml_register_event_type('invoice.exported');
select oml_register_event_type(
  'invoice.exported', 2, required_keys => '{invoice,amount}', max_bytes => 100, pii_class => 'contact', description => 'An invoice left.'
);
reset session authorization;
select results_eq(
  $$ select schema_version, required_keys, max_bytes, pii_class, reserved, description from oml.event_type
     where type = 'invoice.exported' order by schema_version $$,
  $$ values (1, '{}'::text[], 4096, 'none', false, ''), (2, '{invoice,amount}', 100, 'contact', false, 'An invoice left.') $$,
  'a type has version 1, no required keys, 4096 bytes and no personal data unless said otherwise'
);
select results_eq(
  format(
    'select seq, type, principal, "authorization", payload from oml.journal where tenant_id = %L and seq > %s order by seq',
    :'deployment', :'head'
  ),
  format(
    $$ values
      (%s::bigint, 'event-type.registered', 'operator', 'membership:operate',
       '{"type": "invoice.exported", "schema_version": 1, "required_keys": [], "max_bytes": 4096, "pii_class": "none"}'::jsonb),
      (%s, 'event-type.registered', 'operator', 'membership:operate',
       '{"type": "invoice.exported", "schema_version": 2, "required_keys": ["invoice", "amount"], "max_bytes": 100, "pii_class": "contact"}') $$,
    :'head' + 1, :'head' + 2
  ),
  'each registration is an event of the provider chain'
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
  'key., tenant., membership., impersonation., event-type. and oml. are taken.', format('%s cannot be registered', type)
)
from unnest(array[
  'key.issued', 'key.retired', 'tenant.genesis', 'tenant.created', 'tenant.suspended', 'membership.granted',
  'membership.revoked', 'event-type.registered', 'oml.anything'
]) as type;
select lives_ok(
  format('select oml_register_event_type(%L)', type), format('%s is nobody''s namespace', type)
)
from unnest(array['keys.issued', 'tenants.created', 'omlet.made']) as type;
reset session authorization;
select ok(bool_and(reserved), 'every type in those namespaces is reserved')
from oml.event_type where split_part(type, '.', 1) in ('key', 'tenant', 'membership', 'event-type', 'oml');

select ok((select ok from oml_verify_chain('provider')), 'the provider chain verifies');

select * from finish();
rollback;
