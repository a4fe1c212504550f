-- A version of an artifact, the newest if none is named.
create function oml.find_version(tenant_id uuid, artifact_id uuid, version bigint)
returns oml.version_row
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  found_version oml.version_row;
begin
  select v.tenant_id, v.artifact_id, v.version, v.workarea_id, v.author, v.provenance, v.media_type, v.attachments,
    v.plaintext_digest, v.ciphertext_digest, v.dek_id, v.state, v.reviewer
  into found_version
  from oml.artifact_version v
  where v.tenant_id = find_version.tenant_id and v.artifact_id = find_version.artifact_id
    and (find_version.version is null or v.version = find_version.version)
  order by v.version desc
  limit 1;
  if not found then
    if version is not null then
      raise exception using
        errcode = 'OM228', message = format('artifact %s has no version %s', artifact_id, find_version.version),
        hint = format('Its newest version is %s.', (oml.find_version(tenant_id, artifact_id, null)).version);
    end if;
    perform oml.refuse_artifact(artifact_id);
  end if;
  return found_version;
end
$$;
