create table if not exists oml.lease (
  name text not null,
  term bigint not null default 0,
  holder text,
  backend_pid int,
  taken_at timestamptz,
  renewed_at timestamptz,
  expires_at timestamptz,
  constraint lease_pkey primary key (name)
);
comment on table oml.lease is 'Who does a work that one at a time is to do. For tidiness: what is written says itself whether it may be.';
comment on column oml.lease.name is 'The work: lake, the lake writer''s.';
comment on column oml.lease.term is 'Goes up by one each time the holder changes, and never back.';
comment on column oml.lease.holder is 'Who has it: host, process and a number of its own; null once it was given back.';
comment on column oml.lease.backend_pid is 'The holder''s session: once that is gone, nobody waits for the lease to expire.';
comment on column oml.lease.taken_at is 'When the holder took it.';
comment on column oml.lease.renewed_at is 'When the holder last renewed it.';
comment on column oml.lease.expires_at is 'From when on another may take it. The database''s clock alone counts.';
