-- What is left to a time that all waits for locks share, as the limit of the next one.
create function oml.lock_timeout_until(until timestamptz)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform set_config('lock_timeout', greatest(extract(epoch from until - clock_timestamp()) * 1000, 1)::int::text, true);
end
$$;
