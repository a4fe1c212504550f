-- Whether anything is wrapped under a tenant's key-encryption key of an epoch. If so the key must exist: one that
-- is lost is put back and never made anew. Where nothing is, the tenant's chain is locked before that is believed,
-- to the end of the transaction, so that nothing comes between this answer and what the caller does with it.
create function oml.kek_in_use(tenant_id uuid, kek_epoch int)
returns boolean
language plpgsql
volatile
-- search_path: pinned by its callers
as $$
declare
  chain record;
begin
  -- In the order of an index, or a tenant without any would be looked for in all rows of the others.
  perform from oml.dek d
  where d.tenant_id = kek_in_use.tenant_id and d.kek_epoch = kek_in_use.kek_epoch
  order by d.tenant_id, d.dek_id
  limit 1;
  if found then
    return true;
  end if;
  chain := oml.open_chain(tenant_id, false);
  if chain.may_be_stale then
    perform oml.require_fresh(tenant_id, chain.seq + 1);
  end if;
  perform from oml.dek d
  where d.tenant_id = kek_in_use.tenant_id and d.kek_epoch = kek_in_use.kek_epoch
  order by d.tenant_id, d.dek_id
  limit 1;
  return found;
end
$$;
