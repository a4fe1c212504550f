-- Of those that would open the gate one goes on at a time. Nobody is waited for long: whoever appended
-- first after a restart holds this until its transaction ends.
create function oml.lock_instance()
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
declare
  holders text;
begin
  perform from oml.instance i for update;
exception when lock_not_available then
  select string_agg(coalesce('backend pid ' || l.pid, 'a prepared transaction'), ', ') into holders
  from pg_locks l
  where l.relation = 'oml.instance'::regclass
    and l.database = (select d.oid from pg_database d where d.datname = current_database())
    and l.mode = 'RowShareLock' and l.granted and l.pid is distinct from pg_backend_pid();
  raise exception using
    errcode = 'OM139',
    message = format('another transaction is opening the write gate and does not end: %s', coalesce(holders, 'it has just ended')),
    hint = 'End it: commit, roll back or terminate it; COMMIT PREPARED or ROLLBACK PREPARED if pg_prepared_xacts lists it. Then try again.';
end
$$;
