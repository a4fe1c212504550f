create table if not exists oml.event_type (
  type text not null,
  schema_version int not null default 1,
  required_keys text[] not null default '{}',
  max_bytes int not null default 4096,
  pii_class text not null default 'none',
  reserved boolean not null default false,
  description text not null default '',
  constraint event_type_pkey primary key (type, schema_version),
  constraint event_type_type_check check (type ~ '^[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)+$' and octet_length(type) <= 128),
  constraint event_type_required_keys_check check (array_position(required_keys, null) is null),
  constraint event_type_schema_version_check check (schema_version > 0),
  constraint event_type_max_bytes_check check (max_bytes between 2 and 1048576),
  constraint event_type_pii_class_check check (octet_length(pii_class) between 1 and 64)
);
comment on table oml.event_type is 'The event catalogue: which events may be appended and what their payload must hold.';
comment on column oml.event_type.type is 'Dotted lower-case name, for example invoice.exported.';
comment on column oml.event_type.schema_version is 'Version of the payload''s shape; versions stand side by side.';
comment on column oml.event_type.required_keys is 'Top-level keys the payload must have.';
comment on column oml.event_type.max_bytes is 'Largest payload in bytes of UTF-8 JSON text.';
comment on column oml.event_type.pii_class is 'Class of personal data such events carry; none by default. Copied into every event.';
comment on column oml.event_type.reserved is 'True for the deployment''s own events, which oml_append refuses.';
comment on column oml.event_type.description is 'One line for the reader of the catalogue.';
