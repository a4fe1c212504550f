create function @extschema@.oml_review_queue(tenant text default null, after_seq bigint default 0, max_rows int default 100)
returns table (
  submitted_seq bigint, submitted_at timestamptz, artifact_id uuid, version bigint, workarea_id uuid, path text, author text,
  provenance text, media_type text, bytes bigint, attachments int, is_served boolean
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
  actor := oml.caller(oml_review_queue.tenant, '{review}', false);
  return query
  select
    v.submitted_seq, v.submitted_at, v.artifact_id, v.version, v.workarea_id, v.path, v.author, v.provenance, v.media_type,
    v.bytes, v.attachments,
    (
      select count(*) from oml.served s
      where s.tenant_id = v.tenant_id and s.artifact_id = v.artifact_id and s.version = v.version and s.principal = actor.principal
    ) > v.attachments
  from oml.artifact_version v
  where v.tenant_id = actor.tenant_id and v.state = 'held' and v.author <> actor.principal and v.submitted_seq > after_seq
  order by v.submitted_seq
  limit least(max_rows, 1000);
end
$$;
comment on function @extschema@.oml_review_queue(text, bigint, int)
  is 'What waits for a verdict that the caller may give, oldest first, a page after a submitted_seq: at most 1000 rows. Needs review on the tenant.';
