create table if not exists oml.attachment (
  tenant_id uuid not null,
  artifact_id uuid not null,
  version bigint not null,
  part int not null,
  name text not null,
  media_type text not null,
  bytes bigint not null,
  plaintext_digest bytea not null,
  ciphertext_digest bytea not null,
  attached_seq bigint not null,
  constraint attachment_pkey primary key (tenant_id, artifact_id, version, part)
);
comment on table oml.attachment is 'The attachments of a version. Folded from submission.attach.';
comment on column oml.attachment.tenant_id is 'Tenant.';
comment on column oml.attachment.artifact_id is 'Artifact.';
comment on column oml.attachment.version is 'Version of the artifact.';
comment on column oml.attachment.part is 'Place among the parts of the submission: 1, 2, … (0 is the body).';
comment on column oml.attachment.name is 'File name, unique in the submission.';
comment on column oml.attachment.media_type is 'Media type.';
comment on column oml.attachment.bytes is 'Length of the plaintext in bytes.';
comment on column oml.attachment.plaintext_digest is 'SHA-256 of the plaintext.';
comment on column oml.attachment.ciphertext_digest is 'SHA-256 of the stored bytes.';
comment on column oml.attachment.attached_seq is 'Chain seq of its submission.attach.';
