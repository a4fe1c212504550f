create table if not exists oml.tenant (
  tenant_id uuid not null,
  name text not null,
  chain_no bigint not null,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  constraint tenant_pkey primary key (tenant_id),
  constraint tenant_name_key unique (name),
  constraint tenant_chain_no_key unique (chain_no),
  constraint tenant_id_name_key unique (tenant_id, name, chain_no),
  constraint tenant_name_check check (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$')
);
comment on table oml.tenant is 'One row a tenant: one chain and one RLS scope. The provider tenant is the deployment itself.';
comment on column oml.tenant.tenant_id is 'Tenant id; the provider tenant''s id is the deployment id.';
comment on column oml.tenant.name is 'Unique and never changed: lower case letters, digits, dot, underscore, hyphen.';
comment on column oml.tenant.chain_no is 'Order in which several chains are locked; 0 is the provider chain, which is locked last.';
comment on column oml.tenant.created_at is 'When the row was made; the proof of creation is the provider chain''s tenant.created.';
create sequence if not exists oml.chain_no as bigint minvalue 1 cache 1;
