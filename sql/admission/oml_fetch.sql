-- A read: it writes nothing and works on a standby whose signer is there. See oml_review_serve on work_mem.
create function @extschema@.oml_fetch(
  artifact uuid, version bigint default null, attachment text default null, tenant text default null
)
returns table (
  artifact_version bigint, state text, provenance text, name text, media_type text, content bytea, plaintext_digest bytea
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set work_mem = '64MB'
as $$
#variable_conflict use_column
declare
  actor record;
  wanted oml.version_row;
begin
  actor := oml.caller(oml_fetch.tenant, '{append,submit,review,operate,audit}', false);
  select v.tenant_id, v.artifact_id, v.version, v.workarea_id, v.author, v.provenance, v.media_type, v.attachments,
    v.plaintext_digest, v.ciphertext_digest, v.dek_id, v.state, v.reviewer
  into wanted
  from oml.artifact_version v
  where v.tenant_id = actor.tenant_id and v.artifact_id = artifact
    and (oml_fetch.version is null or v.version = oml_fetch.version)
    and oml.may_read(v.tenant_id, v.workarea_id, v.author, v.state, actor.principal)
  order by v.version desc
  limit 1;
  if not found then
    raise exception using
      errcode = 'OM226', message = format('there is no version of artifact %s that principal %L may read', coalesce(artifact::text, 'null'), actor.principal),
      hint = 'The author reads its own; members of its workarea read a version while it is released; reviewers are served it by oml_review_serve().';
  end if;
  return query
  select wanted.version, wanted.state, wanted.provenance, o.name, o.media_type, o.content, o.plaintext_digest
  from oml.open_version(wanted, coalesce(attachment, '')) o;
end
$$;
comment on function @extschema@.oml_fetch(uuid, bigint, text, text)
  is 'The body of an artifact, or one attachment by its name: decrypted, and checked against the digest in the journal. Of the newest version that the caller may read, if none is named.';
