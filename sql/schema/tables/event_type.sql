create table if not exists oml.event_type (
  type text not null,
  schema_version int not null default 1,
  json_schema jsonb,
  schema_digest bytea,
  targets text[] not null default '{bronze.events}',
  pii_class text not null default 'none',
  state_keys text[] not null default '{}',
  required_keys text[] not null default '{}',
  max_bytes int not null default 4096,
  reserved boolean not null default false,
  description text not null default '',
  retired_at timestamptz,
  constraint event_type_pkey primary key (type, schema_version),
  constraint event_type_type_check check (type ~ '^[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)+$' and octet_length(type) <= 128),
  constraint event_type_schema_digest_check check (schema_digest is not distinct from sha256(convert_to(json_schema::text, 'UTF8'))),
  constraint event_type_targets_check check ('bronze.events' = any (targets) and array_position(targets, null) is null),
  constraint event_type_state_keys_check check (array_position(state_keys, null) is null),
  constraint event_type_required_keys_check check (array_position(required_keys, null) is null),
  constraint event_type_schema_version_check check (schema_version > 0),
  constraint event_type_max_bytes_check check (max_bytes between 2 and 1048576),
  constraint event_type_pii_class_check check (octet_length(pii_class) between 1 and 64)
);
comment on table oml.event_type is 'The event catalogue: which events may be appended, what their payload must hold, and what follows from them.';
comment on column oml.event_type.type is 'Dotted lower-case name, for example invoice.exported.';
comment on column oml.event_type.schema_version is 'Version of the payload''s shape; versions stand side by side.';
comment on column oml.event_type.json_schema is 'JSON Schema (draft 2020-12) of the payload, if any.';
comment on column oml.event_type.schema_digest is 'SHA-256 of the schema''s text.';
comment on column oml.event_type.targets is 'Lake tables the events go to.';
comment on column oml.event_type.pii_class is 'Class of personal data such events carry; none by default. Copied into every event.';
comment on column oml.event_type.state_keys is 'Top-level payload keys whose values become the entity''s state.';
comment on column oml.event_type.required_keys is 'Top-level keys the payload must have.';
comment on column oml.event_type.max_bytes is 'Largest payload in bytes of UTF-8 JSON text.';
comment on column oml.event_type.reserved is 'True for the deployment''s own events, which oml_append refuses.';
comment on column oml.event_type.description is 'One line for the reader of the catalogue.';
comment on column oml.event_type.retired_at is 'Since when new events are refused; null while they are taken. Set once.';
