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
  actor := oml.caller(oml_fetch.tenant, '{review,append,submit,operate,audit}', false);
  wanted := oml.readable_version(actor.tenant_id, actor.principal, actor.auth = 'membership:review', artifact, version);
  return query
  select wanted.version, wanted.state, wanted.provenance, o.name, o.media_type, o.content, o.plaintext_digest
  from oml.open_version(wanted, coalesce(attachment, '')) o;
end
$$;
comment on function @extschema@.oml_fetch(uuid, bigint, text, text)
  is 'The body of an artifact, or one attachment by its name: decrypted, and checked against the digest in the journal. Of the newest version that the caller may read, if none is named.';
