-- The lake tables of this version that an event type may name; bronze.events takes every event.
create function oml.known_targets()
returns text[]
language sql
volatile
set search_path = pg_catalog, pg_temp
as $$
  select array['bronze.events']
$$;
