create table if not exists oml.dead_letter (
  outbox_seq bigint not null,
  tenant_id uuid not null,
  chain_seq bigint not null,
  target text not null,
  artifact_id uuid not null,
  artifact_version bigint not null,
  reason text not null,
  attempts int not null,
  skipped_at timestamptz not null default pg_catalog.clock_timestamp(),
  skipped_seq bigint not null,
  requeued_seq bigint,
  requeued_at timestamptz,
  constraint dead_letter_pkey primary key (outbox_seq),
  constraint dead_letter_attempts_check check (attempts > 0)
);
create index if not exists dead_letter_version on oml.dead_letter (tenant_id, artifact_id, artifact_version, target);
create index if not exists dead_letter_requeued on oml.dead_letter (requeued_seq) where requeued_seq is not null;
comment on table oml.dead_letter is 'Outbox rows that could not be applied and were passed over, each with its journalled event. What reads the outbox leaves them out for good; a requeue makes a new row.';
comment on column oml.dead_letter.outbox_seq is 'The outbox row that was passed over.';
comment on column oml.dead_letter.tenant_id is 'Tenant of its event.';
comment on column oml.dead_letter.chain_seq is 'Chain seq of its event.';
comment on column oml.dead_letter.target is 'What it was meant for.';
comment on column oml.dead_letter.artifact_id is 'Artifact it is about.';
comment on column oml.dead_letter.artifact_version is 'Version of that artifact.';
comment on column oml.dead_letter.reason is 'Why it could not be applied.';
comment on column oml.dead_letter.attempts is 'How often it was tried.';
comment on column oml.dead_letter.skipped_at is 'When it was passed over.';
comment on column oml.dead_letter.skipped_seq is 'Seq on the provider''s chain of the lake.materialize-skipped that says so.';
comment on column oml.dead_letter.requeued_seq is 'The outbox row that was made for it later; null while nobody has.';
comment on column oml.dead_letter.requeued_at is 'When that was.';
