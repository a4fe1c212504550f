create table if not exists oml.artifact_event (
  tenant_id uuid not null,
  artifact_id uuid not null,
  seq bigint not null,
  constraint artifact_event_pkey primary key (tenant_id, artifact_id, seq)
);
comment on table oml.artifact_event is 'Which events are about an artifact: an index of the journal that costs other appends nothing.';
comment on column oml.artifact_event.tenant_id is 'Tenant.';
comment on column oml.artifact_event.artifact_id is 'Artifact.';
comment on column oml.artifact_event.seq is 'Chain seq of the event.';
