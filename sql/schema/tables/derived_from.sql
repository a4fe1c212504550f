create table if not exists oml.derived_from (
  tenant_id uuid not null,
  artifact_id uuid not null,
  version bigint not null,
  source_artifact_id uuid not null,
  source_version bigint not null,
  constraint derived_from_pkey primary key (tenant_id, artifact_id, version, source_artifact_id, source_version)
);
create index if not exists derived_from_source on oml.derived_from (tenant_id, source_artifact_id, source_version);
comment on table oml.derived_from is 'What a version was made from, as its author says. Folded from submission.submit.';
comment on column oml.derived_from.tenant_id is 'Tenant.';
comment on column oml.derived_from.artifact_id is 'Artifact that was made.';
comment on column oml.derived_from.version is 'Version that was made.';
comment on column oml.derived_from.source_artifact_id is 'Artifact it was made from.';
comment on column oml.derived_from.source_version is 'Version it was made from.';
