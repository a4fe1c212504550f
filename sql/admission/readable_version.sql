-- A version that a principal may read, the newest such if none is named. A reviewer also reads what it was served,
-- while its verdict is of use.
create function oml.readable_version(tenant_id uuid, principal text, reviews boolean, artifact uuid, version bigint)
returns oml.version_row
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  wanted oml.version_row;
begin
  select v.tenant_id, v.artifact_id, v.version, v.workarea_id, v.author, v.provenance, v.media_type, v.attachments,
    v.plaintext_digest, v.ciphertext_digest, v.dek_id, v.state, v.reviewer
  into wanted
  from oml.artifact_version v
  where v.tenant_id = readable_version.tenant_id and v.artifact_id = artifact
    and (readable_version.version is null or v.version = readable_version.version)
    and (oml.may_read(v.tenant_id, v.workarea_id, v.author, v.state, readable_version.principal) or (
      reviews and v.state in ('held', 'approved') and exists (
        select from oml.served s
        where s.tenant_id = v.tenant_id and s.artifact_id = v.artifact_id and s.version = v.version and s.principal = readable_version.principal
      )
    ))
  order by v.version desc
  limit 1;
  if not found then
    raise exception using
      errcode = 'OM226', message = format('there is no version of artifact %s that principal %L may read', coalesce(artifact::text, 'null'), principal),
      hint = 'The author reads its own; members of its workarea read a version while it is released; reviewers read what oml_review_serve() has served them.';
  end if;
  return wanted;
end
$$;
