create table if not exists oml.journal (
  tenant_id uuid not null,
  seq bigint not null,
  event_id uuid not null,
  occurred_at timestamptz not null,
  type text not null,
  schema_version int not null,
  prev_hash bytea not null,
  hash bytea not null,
  kid bytea not null,
  writer text not null,
  principal text not null,
  "authorization" text not null,
  impersonation text,
  operation text,
  app_version text,
  caused_by uuid,
  invocation_id text,
  entity_type text,
  entity_id text,
  subject_id text,
  pii_class text not null,
  synchronous_commit text not null,
  artifact_id uuid,
  artifact_version bigint,
  plaintext_digest bytea,
  ciphertext_digest bytea,
  dek_id uuid,
  payload jsonb,
  envelope bytea not null,
  idempotency_key text,
  request_digest bytea,
  constraint journal_pkey primary key (tenant_id, seq),
  constraint journal_event_id_key unique (event_id)
);
create unique index if not exists journal_idempotency_key
  on oml.journal (tenant_id, principal, idempotency_key) where idempotency_key is not null;
comment on table oml.journal is 'The system of record: append-only, one hash chain a tenant. Columns are projections of the signed envelope, except idempotency_key and request_digest.';
comment on column oml.journal.tenant_id is 'Chain and RLS scope.';
comment on column oml.journal.seq is 'Chain seq: 1, 2, 3 … per tenant, in commit order.';
comment on column oml.journal.event_id is 'UUIDv7, unique in the deployment.';
comment on column oml.journal.occurred_at is 'Server''s clock when the event was sealed. Order is proved by seq and prev_hash, never by this.';
comment on column oml.journal.type is 'Event type of the catalogue.';
comment on column oml.journal.schema_version is 'Schema version of that type.';
comment on column oml.journal.prev_hash is 'Hash of the tenant''s previous event; 32 zero bytes at genesis.';
comment on column oml.journal.hash is 'SHA-256 of the envelope''s exact bytes.';
comment on column oml.journal.kid is 'Id of the signing key: first 8 bytes of the public key''s SHA-256.';
comment on column oml.journal.writer is 'Login (or key) that wrote; proved by the session.';
comment on column oml.journal.principal is 'Who acted; proved by the session''s membership.';
comment on column oml.journal."authorization" is 'What allowed the act; proved by the session.';
comment on column oml.journal.impersonation is 'Impersonation session and reason, if any; proved by the session.';
comment on column oml.journal.operation is 'Caller''s claim: the operation that made the event.';
comment on column oml.journal.app_version is 'Caller''s claim: version of the calling application.';
comment on column oml.journal.caused_by is 'Caller''s claim: event id of the cause.';
comment on column oml.journal.invocation_id is 'Caller''s claim: the call this event belonged to.';
comment on column oml.journal.entity_type is 'Caller''s claim: type of the entity the event is about.';
comment on column oml.journal.entity_id is 'Caller''s claim: id of that entity.';
comment on column oml.journal.subject_id is 'Caller''s claim: the data subject.';
comment on column oml.journal.pii_class is 'Class of personal data, from the event catalogue.';
comment on column oml.journal.synchronous_commit is 'What the setting was at the append: off, local, remote_write, on or remote_apply. The commit may have run under another.';
comment on column oml.journal.artifact_id is 'Artifact the event is about.';
comment on column oml.journal.artifact_version is 'Version of that artifact.';
comment on column oml.journal.plaintext_digest is 'SHA-256 of the plaintext body: its identity.';
comment on column oml.journal.ciphertext_digest is 'SHA-256 of the stored ciphertext: what a key-less auditor compares.';
comment on column oml.journal.dek_id is 'Data key that seals the payload, where it is sealed.';
comment on column oml.journal.payload is 'The payload as jsonb, for SQL. The signed bytes are in the envelope.';
comment on column oml.journal.envelope is 'The exact COSE_Sign1 bytes: what was signed, and what a verifier trusts.';
comment on column oml.journal.idempotency_key is 'Key of the request, scoped by tenant and principal. Not signed.';
comment on column oml.journal.request_digest is 'SHA-256 of the request made under that key. Not signed.';
