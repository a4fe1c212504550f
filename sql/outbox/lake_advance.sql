-- The frontier follows the tables and never goes back, whoever of two writers comes last.
create function oml.lake_advance(upto bigint)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate');
  update oml.frontier f
  set seq = upto, advanced_at = clock_timestamp()
  where f.name = 'lake' and f.seq < upto;
end
$$;
