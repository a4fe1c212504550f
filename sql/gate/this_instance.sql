-- Which database of which server this is, as the gate compares it. Not on a standby, which has no WAL
-- position of its own.
create function oml.this_instance(
  out system_identifier bigint, out database_oid oid, out journal_oid oid, out timeline text, out postmaster_start timestamptz
)
returns record
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  select c.system_identifier into system_identifier from pg_control_system() c;
  select d.oid into database_oid from pg_database d where d.datname = current_database();
  journal_oid := 'oml.journal'::regclass;
  timeline := substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
  postmaster_start := pg_postmaster_start_time();
end
$$;
