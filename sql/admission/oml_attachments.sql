create function @extschema@.oml_attachments(artifact uuid, version bigint default null, tenant text default null)
returns table (artifact_version bigint, part int, name text, media_type text, bytes bigint, plaintext_digest bytea, ciphertext_digest bytea)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  actor record;
  wanted oml.version_row;
begin
  actor := oml.caller(oml_attachments.tenant, '{review,append,submit,operate,audit}', false);
  wanted := oml.readable_version(actor.tenant_id, actor.principal, actor.auth = 'membership:review', artifact, version);
  return query
  select a.version, a.part, a.name, a.media_type, a.bytes, a.plaintext_digest, a.ciphertext_digest
  from oml.attachment a
  where a.tenant_id = wanted.tenant_id and a.artifact_id = wanted.artifact_id and a.version = wanted.version
  order by a.part;
end
$$;
comment on function @extschema@.oml_attachments(uuid, bigint, text)
  is 'The attachments of a version that the caller may read, the newest such if none is named: what oml_fetch() takes by name.';
