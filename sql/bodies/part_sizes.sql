-- The lengths of parts in bytes. Not by unnest in a FROM clause: that puts the parts into a store of its own, which
-- PostgreSQL writes to a temporary file when it is larger than work_mem.
create function oml.part_sizes(parts bytea[])
returns bigint[]
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  sizes bigint[] := '{}';
begin
  for part in 1 .. cardinality(parts) loop
    sizes := sizes || octet_length(parts[part])::bigint;
  end loop;
  return sizes;
end
$$;
