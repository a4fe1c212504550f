-- The version that a submission of this principal would make of an artifact: 1 of one that is new.
create function oml.next_version(tenant_id uuid, artifact_id uuid, author text)
returns bigint
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  newest record;
begin
  select v.version, v.author into newest
  from oml.artifact_version v
  where v.tenant_id = next_version.tenant_id and v.artifact_id = next_version.artifact_id
  order by v.version desc
  limit 1;
  if newest.author <> next_version.author then
    perform oml.refuse_artifact(artifact_id);
  end if;
  return coalesce(newest.version, 0) + 1;
end
$$;
