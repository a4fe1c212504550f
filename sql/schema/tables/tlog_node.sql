create table if not exists oml.tlog_node (
  tenant_id uuid not null,
  generation int not null,
  level int not null,
  n bigint not null,
  hash bytea not null,
  constraint tlog_node_pkey primary key (tenant_id, generation, level, n),
  constraint tlog_node_level_check check (level between 1 and 7),
  constraint tlog_node_n_check check (n >= 0),
  constraint tlog_node_hash_check check (octet_length(hash) = 32)
);
comment on table oml.tlog_node is 'Hashes of the tree''s full subtrees of 256, 65536, … events, so that a proof needs no scan of the chain. A cache of the tlog''s tiles.';
comment on column oml.tlog_node.tenant_id is 'The chain''s tenant.';
comment on column oml.tlog_node.generation is 'Tlog generation.';
comment on column oml.tlog_node.level is 'Tile level: the subtree has 256 to the power of level leaves.';
comment on column oml.tlog_node.n is 'Position of the subtree at its level, from 0.';
comment on column oml.tlog_node.hash is 'RFC 6962 hash of the subtree.';
