create table if not exists oml.instance (
  only_row boolean not null default true,
  system_identifier bigint not null,
  database_oid oid not null,
  journal_oid oid not null,
  timeline text not null,
  opened_at timestamptz not null,
  constraint instance_pkey primary key (only_row),
  constraint instance_only_row_check check (only_row)
);
comment on table oml.instance is 'Where the write gate was opened last. A logical copy of this database finds another''s numbers here; a copy of its files finds its own.';
comment on column oml.instance.only_row is 'Always true: there is one row.';
comment on column oml.instance.system_identifier is 'System identifier of the cluster, as initdb made it; every copy of its files has the same.';
comment on column oml.instance.database_oid is 'Oid of the database in that cluster.';
comment on column oml.instance.journal_oid is 'Oid of the table oml.journal: another one after a restore into the same database.';
comment on column oml.instance.timeline is 'WAL timeline, as the first eight hex digits of WAL file names; each promotion and recovery to a point begins another.';
comment on column oml.instance.opened_at is 'When the gate was opened.';
