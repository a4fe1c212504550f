-- Locks a chain to the end of the transaction and returns the kid in force on it.
create function oml.lock_chain(tenant_id uuid)
returns bytea
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  kid bytea;
begin
  select h.kid into kid from oml.chain_head h where h.tenant_id = lock_chain.tenant_id for update;
  if not found then
    raise exception using
      errcode = 'OM040',
      message = format('the chain of tenant %s has no chain_head row', tenant_id),
      hint = 'It was removed behind OML''s back, or a restore was partial. Restore it before anything is appended.';
  end if;
  return kid;
end
$$;
