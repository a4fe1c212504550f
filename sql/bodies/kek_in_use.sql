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
  some_epoch int;
  chain record;
begin
  -- One row in the order of the primary key, of any epoch: whatever the planner believes of this table, it reads
  -- no second one.
  select d.kek_epoch into some_epoch from oml.dek d where d.tenant_id = kek_in_use.tenant_id order by d.dek_id limit 1;
  if some_epoch = kek_epoch then
    return true;
  end if;
  chain := oml.open_chain(tenant_id, false);
  if chain.may_be_stale then
    perform oml.require_fresh(tenant_id, chain.seq + 1);
  end if;
  -- Not by exists, which the planner answers by reading all tenants' rows.
  perform from oml.dek d
  where d.tenant_id = kek_in_use.tenant_id and d.kek_epoch = kek_in_use.kek_epoch
  order by d.dek_id
  limit 1;
  return found;
end
$$;
