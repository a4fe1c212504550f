create table if not exists oml.artifact_version (
  tenant_id uuid not null,
  artifact_id uuid not null,
  version bigint not null,
  workarea_id uuid not null,
  path text not null,
  author text not null,
  provenance text not null,
  media_type text not null,
  bytes bigint not null,
  attachments int not null,
  plaintext_digest bytea not null,
  ciphertext_digest bytea not null,
  dek_id uuid not null,
  submitted_seq bigint not null,
  submitted_at timestamptz not null,
  state text not null,
  state_seq bigint not null,
  reviewer text,
  reason text,
  constraint artifact_version_pkey primary key (tenant_id, artifact_id, version)
);
create index if not exists artifact_version_seq on oml.artifact_version (tenant_id, submitted_seq);
create index if not exists artifact_version_waiting on oml.artifact_version (tenant_id, state, submitted_seq) where state in ('held', 'approved');
create index if not exists artifact_version_author on oml.artifact_version (tenant_id, author, submitted_seq);
comment on table oml.artifact_version is 'One row a submission: a version of an artifact, and where it stands. Folded from the events that name it; it holds no content.';
comment on column oml.artifact_version.tenant_id is 'Tenant.';
comment on column oml.artifact_version.artifact_id is 'Artifact.';
comment on column oml.artifact_version.version is 'Version of the artifact: 1, 2, 3 …';
comment on column oml.artifact_version.workarea_id is 'Workarea it lies in: of the submission, or of its last reassignment.';
comment on column oml.artifact_version.path is 'Path of the workarea when the submission was made; never changed.';
comment on column oml.artifact_version.author is 'Principal that submitted it.';
comment on column oml.artifact_version.provenance is 'observed, derived, imported or simulated; never changed.';
comment on column oml.artifact_version.media_type is 'Media type of the body.';
comment on column oml.artifact_version.bytes is 'Length of the body''s plaintext in bytes.';
comment on column oml.artifact_version.attachments is 'Number of attachments.';
comment on column oml.artifact_version.plaintext_digest is 'SHA-256 of the body''s plaintext.';
comment on column oml.artifact_version.ciphertext_digest is 'SHA-256 of the body''s stored bytes.';
comment on column oml.artifact_version.dek_id is 'Data key of the body and the attachments.';
comment on column oml.artifact_version.submitted_seq is 'Chain seq of its submission.submit.';
comment on column oml.artifact_version.submitted_at is 'Time of that event.';
comment on column oml.artifact_version.state is 'State of the lifecycle (oml.lifecycle()).';
comment on column oml.artifact_version.state_seq is 'Chain seq of the event that brought it there.';
comment on column oml.artifact_version.reviewer is 'Principal that gave the verdict.';
comment on column oml.artifact_version.reason is 'Reason of the last change of state, if one was given.';
