create table if not exists oml.writer_envelope (
  tenant_id uuid not null,
  artifact_id uuid not null,
  version bigint not null,
  envelope bytea not null,
  constraint writer_envelope_pkey primary key (tenant_id, artifact_id, version)
);
comment on table oml.writer_envelope is 'What a writer signed of a submission with its own key. The journal has its digest.';
comment on column oml.writer_envelope.tenant_id is 'Tenant.';
comment on column oml.writer_envelope.artifact_id is 'Artifact.';
comment on column oml.writer_envelope.version is 'Version of the artifact.';
comment on column oml.writer_envelope.envelope is 'The exact COSE_Sign1 bytes.';
