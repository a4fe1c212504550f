create table if not exists oml.impersonation (
  session_id uuid not null,
  login name not null,
  by_principal text not null,
  tenant_id uuid not null,
  tenant text not null,
  principal text not null,
  reason text not null,
  started_at timestamptz not null,
  expires_at timestamptz not null,
  ended_at timestamptz,
  constraint impersonation_pkey primary key (session_id),
  constraint impersonation_reason_check check (octet_length(reason) between 1 and 512),
  constraint impersonation_expires_check check (expires_at > started_at)
);
comment on table oml.impersonation is 'Impersonation sessions: who may act as whom, for how long and why. A projection of the provider chain''s impersonation.started and impersonation.ended.';
comment on column oml.impersonation.session_id is 'The session; oml_use(impersonation => …) takes it.';
comment on column oml.impersonation.login is 'Login that may use it, compared with session_user.';
comment on column oml.impersonation.by_principal is 'Who impersonates.';
comment on column oml.impersonation.tenant_id is 'Tenant in which it holds.';
comment on column oml.impersonation.tenant is 'Name of that tenant.';
comment on column oml.impersonation.principal is 'Who is impersonated.';
comment on column oml.impersonation.reason is 'Why; signed into every event made under the session.';
comment on column oml.impersonation.started_at is 'When it began.';
comment on column oml.impersonation.expires_at is 'When it ends by itself.';
comment on column oml.impersonation.ended_at is 'When it was ended; null while it was not.';
