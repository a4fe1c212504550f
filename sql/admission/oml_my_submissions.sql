create function @extschema@.oml_my_submissions(
  artifact uuid default null, tenant text default null, before_seq bigint default null, max_rows int default 100
)
returns table (
  submitted_seq bigint, submitted_at timestamptz, artifact_id uuid, version bigint, workarea_id uuid, path text,
  provenance text, media_type text, bytes bigint, attachments int, plaintext_digest bytea, ciphertext_digest bytea,
  state text, reviewer text, reason text
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  actor record;
begin
  actor := oml.caller(oml_my_submissions.tenant, '{submit,append,review,operate,audit}', false);
  return query
  select
    v.submitted_seq, v.submitted_at, v.artifact_id, v.version, v.workarea_id, v.path, v.provenance, v.media_type, v.bytes,
    v.attachments, v.plaintext_digest, v.ciphertext_digest, v.state, v.reviewer, v.reason
  from oml.artifact_version v
  where v.tenant_id = actor.tenant_id and v.author = actor.principal
    and (artifact is null or v.artifact_id = artifact)
    and (before_seq is null or v.submitted_seq < before_seq)
  order by v.submitted_seq desc
  limit least(max_rows, 1000);
end
$$;
comment on function @extschema@.oml_my_submissions(uuid, text, bigint, int)
  is 'The caller''s own submissions and where they stand, newest first, a page before a submitted_seq: at most 1000 rows. Needs any permission on the tenant.';
