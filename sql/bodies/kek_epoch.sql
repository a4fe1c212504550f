-- The KEK epoch that a tenant's data keys are wrapped under. Key-encryption keys are not rotated yet: it is the first.
create function oml.kek_epoch(tenant_id uuid)
returns int
language sql
immutable
set search_path = pg_catalog, pg_temp
as $$
  select 1
$$;
