create table if not exists oml.frontier (
  name text not null,
  seq bigint not null default 0,
  advanced_at timestamptz not null default pg_catalog.clock_timestamp(),
  fenced_seq bigint not null default 0,
  fenced_at timestamptz,
  constraint frontier_pkey primary key (name)
);
comment on table oml.frontier is 'How far each consumer of the outbox has come. A cache for restarts and lag; what they write says itself how far it goes.';
comment on column oml.frontier.name is 'Consumer of the outbox: lake, tlog or bodies.';
comment on column oml.frontier.seq is 'Every outbox row up to this seq is in the lake, or its event in a tlog checkpoint, or its content in the object store.';
comment on column oml.frontier.advanced_at is 'When seq last moved.';
comment on column oml.frontier.fenced_seq is 'Outbox seq of the latest fence, in the row lake for both: its row''s commit puts WAL behind every row up to there.';
comment on column oml.frontier.fenced_at is 'When that fence was written.';
