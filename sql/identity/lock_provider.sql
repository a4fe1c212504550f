-- What a verb asks for that must see the signing key as it stays to its commit: locks the provider chain
-- and returns the kid in force.
create function oml.lock_provider()
returns bytea
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  provider_id uuid := (select s.value from oml.setting s where s.name = 'deployment_id');
  kid bytea;
begin
  select h.kid into kid from oml.chain_head h where h.tenant_id = provider_id for update;
  if not found then
    raise exception using
      errcode = 'OM040',
      message = format('the chain of tenant %s has no chain_head row', provider_id),
      hint = 'It was removed behind OML''s back, or a restore was partial. Restore it before anything is appended.';
  end if;
  return kid;
end
$$;
