create table if not exists oml.served (
  tenant_id uuid not null,
  artifact_id uuid not null,
  version bigint not null,
  part int not null,
  principal text not null,
  served_seq bigint not null,
  constraint served_pkey primary key (tenant_id, artifact_id, version, part, principal)
);
comment on table oml.served is 'Which part of which version was served to which reviewer: what a verdict rests on. Folded from review.serve.';
comment on column oml.served.tenant_id is 'Tenant.';
comment on column oml.served.artifact_id is 'Artifact.';
comment on column oml.served.version is 'Version of the artifact.';
comment on column oml.served.part is 'Part: 0 the body, 1, 2, … the attachments.';
comment on column oml.served.principal is 'Reviewer it was served to.';
comment on column oml.served.served_seq is 'Chain seq of the last review.serve that says so.';
