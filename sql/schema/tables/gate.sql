create unlogged table if not exists oml.gate (
  only_row boolean not null default true,
  system_identifier bigint not null,
  database_oid oid not null,
  journal_oid oid not null,
  timeline text not null,
  postmaster_start timestamptz not null,
  opened_at timestamptz not null,
  opened_by text not null,
  evidence jsonb not null,
  signer text,
  deployment_id uuid,
  profile text,
  constraint gate_pkey primary key (only_row),
  constraint gate_only_row_check check (only_row)
);
comment on table oml.gate is 'The write gate: open while its one row names the server that runs now. Unlogged, so that a crash and a promotion empty it; after any other restart, and in any copy, the row names another.';
comment on column oml.gate.only_row is 'Always true: there is one row at most.';
comment on column oml.gate.system_identifier is 'System identifier of the cluster.';
comment on column oml.gate.database_oid is 'Oid of the database.';
comment on column oml.gate.journal_oid is 'Oid of the table oml.journal.';
comment on column oml.gate.timeline is 'WAL timeline, as the first eight hex digits of WAL file names.';
comment on column oml.gate.postmaster_start is 'When that server was started, to the microsecond.';
comment on column oml.gate.opened_at is 'When the gate was opened.';
comment on column oml.gate.opened_by is 'Login that opened it.';
comment on column oml.gate.signer is 'Copy of the setting, so that an append reads one row; kept by copy_settings, null where the setting is gone.';
comment on column oml.gate.deployment_id is 'Copy of the setting.';
comment on column oml.gate.profile is 'Copy of the setting.';
comment on column oml.gate.evidence is 'What was checked before, and what could not be.';
