create function oml.lake_record_table(name text, generation int, location text)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate');
  insert into oml.lake_table (name, generation, location)
  values (lake_record_table.name, lake_record_table.generation, lake_record_table.location)
  on conflict on constraint lake_table_pkey do nothing;
end
$$;
comment on function oml.lake_record_table(text, int, text)
  is 'Record that a lake table exists. Needs operate on the provider.';
