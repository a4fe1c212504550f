create table if not exists oml.chain_head (
  tenant_id uuid not null,
  chain_no bigint not null,
  kid bytea not null,
  constraint chain_head_pkey primary key (tenant_id),
  constraint chain_head_tenant_fkey foreign key (tenant_id) references oml.tenant (tenant_id),
  constraint chain_head_kid_check check (octet_length(kid) = 8)
);
comment on table oml.chain_head is 'The lock of each chain. An append locks its row FOR UPDATE to commit and never updates it: the head itself is the last row of the journal. A rotation of the signing key updates all rows.';
comment on column oml.chain_head.tenant_id is 'The chain''s tenant.';
comment on column oml.chain_head.chain_no is 'Copy of tenant.chain_no.';
comment on column oml.chain_head.kid is 'The signing key in force on this chain. It lies in the row that an append locks, so no append can sign with a key that was retired while it waited.';
