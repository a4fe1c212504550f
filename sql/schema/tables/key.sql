create table if not exists oml.key (
  kid bytea not null,
  public_key bytea not null,
  purpose text not null,
  tenant_id uuid,
  tenant text,
  principal text,
  issued_seq bigint not null,
  retired_seq bigint,
  constraint key_pkey primary key (kid),
  constraint key_kid_check check (kid = substr(sha256(public_key), 1, 8)),
  constraint key_public_key_check check (octet_length(public_key) = 32),
  constraint key_purpose_check check (purpose in ('root', 'signing', 'writer')),
  constraint key_writer_check check (
    (purpose = 'writer') = (tenant_id is not null and tenant is not null and principal is not null)
    and num_nulls(tenant_id, tenant, principal) in (0, 3)
  ),
  constraint key_retired_check check (retired_seq > issued_seq)
);
comment on table oml.key is 'Public keys that were ever issued. A projection of the provider chain''s key.issued and key.retired events, which are the authority.';
comment on column oml.key.kid is 'Key id: first 8 bytes of the public key''s SHA-256.';
comment on column oml.key.public_key is 'Ed25519 public key, 32 bytes.';
comment on column oml.key.purpose is 'root (the first signing key), signing (the deployment''s events) or writer (a principal''s own submissions).';
comment on column oml.key.tenant_id is 'Tenant of a writer key.';
comment on column oml.key.tenant is 'Name of that tenant.';
comment on column oml.key.principal is 'Principal whose writer key it is.';
comment on column oml.key.issued_seq is 'Provider chain seq of its key.issued.';
comment on column oml.key.retired_seq is 'Provider chain seq of its key.retired; null while it is not retired.';
