-- The KEK epoch that a tenant's data keys are wrapped under. Key-encryption keys are not rotated yet: it is the first.
create function oml.kek_epoch(tenant_id uuid)
returns int
language sql
immutable
-- no search_path, so that it is inlined: it names nothing
as $$
  select 1
$$;
