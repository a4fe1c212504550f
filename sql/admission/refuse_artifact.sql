-- One answer for an artifact that is not there and for one that is not the caller's to know.
create function oml.refuse_artifact(artifact_id uuid)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using
    errcode = 'OM203', message = format('there is no artifact %s that the caller may act on', coalesce(artifact_id::text, 'null')),
    hint = 'oml_artifacts() lists what the caller may act on or read. Only its author submits a next version.';
end
$$;
