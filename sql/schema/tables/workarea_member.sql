create table if not exists oml.workarea_member (
  tenant_id uuid not null,
  workarea_id uuid not null,
  principal text not null,
  is_member boolean not null,
  last_seq bigint not null,
  constraint workarea_member_pkey primary key (tenant_id, workarea_id, principal)
);
comment on table oml.workarea_member is 'Who may submit to a workarea, and read what is released in it. Folded from workarea.joined and workarea.left.';
comment on column oml.workarea_member.tenant_id is 'Tenant.';
comment on column oml.workarea_member.workarea_id is 'Workarea.';
comment on column oml.workarea_member.principal is 'Principal.';
comment on column oml.workarea_member.is_member is 'Whether it is a member now: who left keeps its row.';
comment on column oml.workarea_member.last_seq is 'Chain seq of the event that last said so.';
