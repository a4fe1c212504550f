-- Journals key.issued and keeps its projection. details go into the event beside the key itself.
create function oml.issue_key(
  public_key bytea,
  purpose text,
  details jsonb default '{}',
  tenant_id uuid default null,
  tenant text default null,
  principal text default null
)
returns bytea
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  kid bytea := substr(sha256(public_key), 1, 8);
  issued oml.receipt;
begin
  issued := oml.append_provider_event('key.issued', details || jsonb_build_object(
    'kid', encode(kid, 'hex'), 'public_key', encode(public_key, 'hex'), 'algorithm', 'Ed25519', 'purpose', purpose
  ));
  insert into oml.key (kid, public_key, purpose, tenant_id, tenant, principal, issued_seq)
  values (kid, public_key, purpose, tenant_id, tenant, principal, issued.seq);
  return kid;
end
$$;
