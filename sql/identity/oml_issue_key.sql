create function @extschema@.oml_issue_key(
  public_key bytea,
  purpose text default 'writer',
  tenant text default null,
  principal text default null
)
returns text
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  tenant_id uuid;
begin
  perform oml.require_operator();
  if octet_length(public_key) is distinct from 32 then
    raise exception using
      errcode = 'OM120',
      message = format('a public key of %s bytes', coalesce(octet_length(public_key)::text, 'no')),
      hint = 'An Ed25519 public key has 32 bytes; oml keys generate prints it in hex.';
  elsif purpose is null or purpose not in ('signing', 'writer') then
    raise exception using
      errcode = 'OM121', message = format('no key is issued for %L', purpose),
      hint = 'signing: a key that oml_rotate_signing_key() may put in force. writer: a principal''s own.';
  elsif (purpose = 'writer') <> (tenant is not null and principal is not null) or num_nulls(tenant, principal) = 1 then
    raise exception using
      errcode = 'OM122', message = format('a %s key %s tenant and principal', purpose, case purpose when 'writer' then 'needs' else 'has no' end),
      hint = 'A writer key is one principal''s in one tenant; a signing key is the deployment''s.';
  end if;
  if purpose = 'writer' then
    select m.tenant_id into tenant_id
    from oml.membership m
    where m.tenant = oml_issue_key.tenant and m.principal = oml_issue_key.principal
    limit 1;
    if not found then
      raise exception using
        errcode = 'OM123', message = format('nobody acts as principal %L in tenant %L', principal, tenant),
        hint = 'Bind a login first: select oml_grant(login => …, tenant => …, principal => …).';
    end if;
  end if;
  begin
    return encode(oml.issue_key(
      public_key, purpose,
      case purpose when 'writer'
        then jsonb_build_object('tenant_id', tenant_id, 'tenant', tenant, 'principal', principal) else '{}' end,
      tenant_id, tenant, principal
    ), 'hex');
  exception when unique_violation then
    raise exception using
      errcode = 'OM124', message = format('key %s was issued before', encode(substr(sha256(public_key), 1, 8), 'hex')),
      hint = 'A key is issued once and for one purpose: make a new one with oml keys generate.';
  end;
end
$$;
comment on function @extschema@.oml_issue_key(bytea, text, text, text)
  is 'Issue a public key, journalled on the provider chain: a principal''s writer key, or a signing key to rotate to. Returns its kid in hex. Needs operate on the provider.';
