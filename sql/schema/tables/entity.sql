create table if not exists oml.entity (
  tenant_id uuid not null,
  entity_type text not null,
  entity_id text not null,
  last_seq bigint not null,
  last_event_id uuid not null,
  last_type text not null,
  event_count bigint not null,
  first_at timestamptz not null,
  last_at timestamptz not null,
  state jsonb not null,
  constraint entity_pkey primary key (tenant_id, entity_type, entity_id)
) with (fillfactor = 70);
comment on table oml.entity is 'Current state of each entity that events name: folded from the journal with each insert, and nothing else. oml_fold_check() replays and compares.';
comment on column oml.entity.tenant_id is 'Tenant of the events.';
comment on column oml.entity.entity_type is 'Type of the entity, as the events claim.';
comment on column oml.entity.entity_id is 'Id of the entity, as the events claim.';
comment on column oml.entity.last_seq is 'Chain seq of its last event.';
comment on column oml.entity.last_event_id is 'Id of that event.';
comment on column oml.entity.last_type is 'Type of that event.';
comment on column oml.entity.event_count is 'How many events name it.';
comment on column oml.entity.first_at is 'When its first event occurred.';
comment on column oml.entity.last_at is 'When its last event occurred.';
comment on column oml.entity.state is 'For each state key of its events'' types, the value in the last event that had it.';
