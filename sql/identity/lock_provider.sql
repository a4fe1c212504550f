-- The provider chain's, for verbs that must see the signing key as it stays to their commit.
create function oml.lock_provider()
returns bytea
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return oml.lock_chain((select s.value from oml.setting s where s.name = 'deployment_id')::uuid);
end
$$;
