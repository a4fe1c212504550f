create function oml.lake_tables()
returns table (name text, generation int, location text)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate', 'audit');
  return query select t.name, t.generation, t.location from oml.lake_table t order by t.name;
end
$$;
comment on function oml.lake_tables()
  is 'The lake tables that exist. Needs operate or audit on the provider.';
