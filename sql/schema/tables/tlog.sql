create table if not exists oml.tlog (
  tenant_id uuid not null,
  generation int not null default 1,
  size bigint not null default 0,
  root bytea,
  checkpoint text,
  published_at timestamptz,
  constraint tlog_pkey primary key (tenant_id),
  constraint tlog_tenant_fkey foreign key (tenant_id) references oml.tenant (tenant_id),
  constraint tlog_generation_check check (generation > 0),
  constraint tlog_size_check check (size >= 0),
  constraint tlog_root_check check (octet_length(root) = 32),
  constraint tlog_published_check check ((size > 0) = (num_nulls(root, checkpoint, published_at) = 0))
);
comment on table oml.tlog is 'The newest tlog checkpoint of each chain. A copy of what lies in the tlog location, which is the authority; only the generation is decided here.';
comment on column oml.tlog.tenant_id is 'The chain''s tenant.';
comment on column oml.tlog.generation is 'Tlog generation: the origin''s last part. An accepted loss begins the next one.';
comment on column oml.tlog.size is 'Tree size of the checkpoint: the chain seq of the last event in it. 0 before the first one.';
comment on column oml.tlog.root is 'RFC 6962 root hash at that size.';
comment on column oml.tlog.checkpoint is 'The signed note as published (c2sp.org/tlog-checkpoint).';
comment on column oml.tlog.published_at is 'When it was published.';
