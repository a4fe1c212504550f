create table if not exists oml.workarea (
  tenant_id uuid not null,
  workarea_id uuid not null,
  path text not null,
  created_seq bigint not null,
  last_seq bigint not null,
  constraint workarea_pkey primary key (tenant_id, workarea_id),
  constraint workarea_path_key unique (tenant_id, path)
);
comment on table oml.workarea is 'Where artifacts lie: a place with members. Folded from workarea.created and workarea.moved.';
comment on column oml.workarea.tenant_id is 'Tenant.';
comment on column oml.workarea.workarea_id is 'The stable key: it stays when the workarea moves.';
comment on column oml.workarea.path is 'Where it is now: names with slashes between them.';
comment on column oml.workarea.created_seq is 'Chain seq of its workarea.created.';
comment on column oml.workarea.last_seq is 'Chain seq of the last event that made or moved it.';
