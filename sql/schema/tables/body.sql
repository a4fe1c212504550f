create table if not exists oml.body (
  tenant_id uuid not null,
  artifact_id uuid not null,
  version bigint not null,
  part int not null,
  ciphertext bytea not null,
  constraint body_pkey primary key (tenant_id, artifact_id, version, part)
);
alter table oml.body alter column ciphertext set storage external;
comment on table oml.body is 'Encrypted bodies and attachments, before and after their release. Not in the journal, which has their digests.';
comment on column oml.body.tenant_id is 'Tenant.';
comment on column oml.body.artifact_id is 'Artifact.';
comment on column oml.body.version is 'Version of the artifact.';
comment on column oml.body.part is 'Part: 0 the body, 1, 2, … the attachments.';
comment on column oml.body.ciphertext is 'The stored bytes: version byte, nonce, XChaCha20-Poly1305 ciphertext with its tag.';
