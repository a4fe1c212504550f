-- Asked by every append: does the gate's row name the server that runs now? The system identifier is left
-- to the opening: reading it would double the cost (5 µs), and another cluster's server was started at
-- another microsecond. No unlogged table can be read on a standby, so that is asked first.
create function oml.require_gate()
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_is_in_recovery() then
    perform oml.refuse_read_only();
  end if;
  if not exists (
    select from oml.gate g
    where g.postmaster_start = pg_postmaster_start_time()
      and g.database_oid = (select d.oid from pg_database d where d.datname = current_database())
      and g.journal_oid = 'oml.journal'::regclass
      and g.timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
  ) then
    perform oml.open_gate_alone();
  end if;
end
$$;
