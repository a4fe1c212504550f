-- Appends events of a submission, review or workarea to the caller's chain, and returns the receipt of the
-- first one. Their state is folded with them.
create function oml.append_admission(tenant_id uuid, principal text, auth text, items oml.batch_item[])
returns oml.receipt
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan -- plans for one or two events cost more than running them
as $$
#variable_conflict use_column
declare
  first oml.receipt;
begin
  select r.tenant_id, r.seq, r.event_id, r.hash into strict first
  from oml.append_events(append_admission.tenant_id, append_admission.principal, auth, null, items) r
  order by r.n
  limit 1;
  return first;
end
$$;
