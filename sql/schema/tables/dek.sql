create table if not exists oml.dek (
  tenant_id uuid not null,
  dek_id uuid not null,
  artifact_id uuid not null,
  version bigint not null,
  kek_epoch int not null,
  wrapped bytea not null,
  constraint dek_pkey primary key (tenant_id, dek_id),
  constraint dek_version_key unique (tenant_id, artifact_id, version)
);
comment on table oml.dek is 'Data keys, each wrapped under its tenant''s key-encryption key, which the signer holds. Not in the journal.';
comment on column oml.dek.tenant_id is 'Tenant.';
comment on column oml.dek.dek_id is 'Data key.';
comment on column oml.dek.artifact_id is 'Artifact it serves.';
comment on column oml.dek.version is 'Version it serves.';
comment on column oml.dek.kek_epoch is 'KEK epoch that it is wrapped under.';
comment on column oml.dek.wrapped is 'The wrapped key, bound to tenant, artifact and id.';
