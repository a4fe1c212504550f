-- Who reviews or operates the tenant sees every version, without content; anybody else what oml_fetch would give it.
create function @extschema@.oml_artifacts(
  workarea text default null, state text default null, tenant text default null, after_seq bigint default 0, max_rows int default 100
)
returns table (
  submitted_seq bigint, submitted_at timestamptz, artifact_id uuid, version bigint, workarea_id uuid, path text, author text,
  provenance text, media_type text, bytes bigint, attachments int, current_state text
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  actor record;
  sees_all boolean;
begin
  actor := oml.caller(oml_artifacts.tenant, '{operate,review,submit,append,audit}', false);
  sees_all := actor.auth in ('membership:operate', 'membership:review');
  return query
  select v.submitted_seq, v.submitted_at, v.artifact_id, v.version, v.workarea_id, w.path, v.author, v.provenance,
    v.media_type, v.bytes, v.attachments, v.state
  from oml.artifact_version v
  join oml.workarea w on w.tenant_id = v.tenant_id and w.workarea_id = v.workarea_id
  where v.tenant_id = actor.tenant_id and v.submitted_seq > after_seq
    and (oml_artifacts.workarea is null or w.path = oml_artifacts.workarea or w.workarea_id::text = oml_artifacts.workarea)
    and (oml_artifacts.state is null or v.state = oml_artifacts.state)
    and (sees_all or oml.may_read(v.tenant_id, v.workarea_id, v.author, v.state, actor.principal))
  order by v.submitted_seq
  limit least(max_rows, 1000);
end
$$;
comment on function @extschema@.oml_artifacts(text, text, text, bigint, int)
  is 'The versions that the caller may read, in the order they were submitted, a page after a submitted_seq: at most 1000 rows. For who has operate or review on the tenant all of them, without content: state => ''approved'' is what waits to be promoted. path is that of today.';
