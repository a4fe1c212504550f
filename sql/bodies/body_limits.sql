-- What a submission may hold in one call. oml.core.body has the same numbers for the driver; a test compares.
create function oml.body_limits(out body_bytes bigint, out attachment_bytes bigint, out attachments int)
returns record
language sql
immutable
set search_path = pg_catalog, pg_temp
as $$
  select 8388608::bigint, 1048576::bigint, 16
$$;
