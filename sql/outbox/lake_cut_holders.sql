-- Fence, step 2: who may have drawn a number up to the limit and has not ended. Whoever drew took
-- the table's lock and an xid before, and keeps both to its end, also across PREPARE TRANSACTION
-- (which keeps the virtual xid). One materialized scan: between two, a holder could change.
-- Given xids, only those of them that still run. Subtransactions are listed under xids of their own;
-- pg_prepared_xacts knows the topmost alone.
create function oml.lake_cut_holders(xids bigint[] default null)
returns table (xid bigint, pid int, gid text)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform oml.require_provider('operate', 'audit');
  return query
  with locks as materialized (
    select l.locktype, l.database, l.relation, l.transactionid, l.virtualtransaction, l.pid, l.mode
    from pg_locks l
    where l.granted
  )
  select distinct x.transactionid::text::bigint, x.pid, p.gid
  from locks x
  left join (locks t join pg_prepared_xacts p on p.transaction = t.transactionid)
    on t.locktype = 'transactionid' and t.virtualtransaction = x.virtualtransaction
  where x.locktype = 'transactionid' and x.mode = 'ExclusiveLock'
    and case when xids is null then exists (
      select from locks l
      where l.virtualtransaction = x.virtualtransaction
        and l.locktype = 'relation' and l.mode = 'RowExclusiveLock'
        and l.relation = 'oml.outbox'::regclass
        and l.database = (select d.oid from pg_database d where d.datname = current_database())
    ) else x.transactionid::text::bigint = any (xids) end;
end
$$;
comment on function oml.lake_cut_holders(bigint[])
  is 'Transactions that may hold an undecided outbox seq, or which of the given xids still run. Needs operate or audit on the provider.';
