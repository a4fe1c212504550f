create table if not exists oml.membership (
  login name not null,
  tenant_id uuid not null,
  tenant text not null,
  chain_no bigint not null,
  principal text not null,
  permissions text[] not null,
  granted_at timestamptz not null default pg_catalog.clock_timestamp(),
  constraint membership_pkey primary key (login, tenant, principal),
  constraint membership_tenant_fkey foreign key (tenant_id, tenant, chain_no)
    references oml.tenant (tenant_id, name, chain_no),
  constraint membership_principal_check check (octet_length(principal) between 1 and 256),
  constraint membership_permissions_check check (
    permissions <@ array['append', 'submit', 'review', 'operate', 'audit'] and cardinality(permissions) > 0
  )
);
comment on table oml.membership is 'As whom a login may act in which tenant, and what it may do. Group roles only grant EXECUTE; these rows decide.';
comment on column oml.membership.login is 'Login role, compared with session_user.';
comment on column oml.membership.tenant_id is 'Tenant the login is bound to.';
comment on column oml.membership.tenant is 'Copy of that tenant''s name, so that an append needs no look at oml.tenant.';
comment on column oml.membership.chain_no is 'Copy of that tenant''s chain_no, by which a batch orders its locks.';
comment on column oml.membership.principal is 'Who acts when this login writes; by default the login''s name.';
comment on column oml.membership.permissions is 'Any of append, submit, review, operate, audit.';
comment on column oml.membership.granted_at is 'When the row was made; the proof is the provider chain''s membership.granted.';
