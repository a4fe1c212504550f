-- Whether a version had been released by an event of its chain, as the journal has it.
create function oml.was_released(tenant_id uuid, artifact uuid, version bigint, upto bigint)
returns boolean
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return exists (
    select from oml.artifact_event a
    join oml.journal j on j.tenant_id = a.tenant_id and j.seq = a.seq
    where a.tenant_id = was_released.tenant_id and a.artifact_id = was_released.artifact and a.seq <= was_released.upto
      and j.artifact_id = was_released.artifact and j.artifact_version = was_released.version and j.type = 'artifact.promoted'
  );
end
$$;
