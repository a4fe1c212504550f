create function @extschema@.oml_history(
  artifact uuid, tenant text default null, after_seq bigint default 0, max_rows int default 100
)
returns table (
  seq bigint, event_id uuid, occurred_at timestamptz, type text, version bigint, principal text,
  from_state text, to_state text, reason text
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
  actor := oml.caller(oml_history.tenant, '{audit,operate,review,submit,append}', false);
  sees_all := actor.auth in ('membership:review', 'membership:operate', 'membership:audit');
  if not exists (
    select from oml.artifact_version v
    where v.tenant_id = actor.tenant_id and v.artifact_id = artifact
      and (sees_all or oml.may_read(v.tenant_id, v.workarea_id, v.author, v.state, actor.principal))
  ) then
    perform oml.refuse_artifact(artifact);
  end if;
  return query
  select j.seq, j.event_id, j.occurred_at, j.type, j.artifact_version, j.principal,
    j.payload ->> 'from', j.payload ->> 'to', j.payload ->> 'reason'
  from oml.artifact_event e
  join oml.journal j on j.tenant_id = e.tenant_id and j.seq = e.seq
  join oml.artifact_version v on v.tenant_id = j.tenant_id and v.artifact_id = j.artifact_id and v.version = j.artifact_version
  where e.tenant_id = actor.tenant_id and e.artifact_id = artifact and e.seq > after_seq
    and (sees_all or oml.may_read(v.tenant_id, v.workarea_id, v.author, v.state, actor.principal))
  order by e.seq
  limit least(max_rows, 1000);
end
$$;
comment on function @extschema@.oml_history(uuid, text, bigint, int)
  is 'The events about an artifact in chain order, a page after a seq: at most 1000 rows. Of the versions that the caller may read; of all for whoever has review, operate or audit on the tenant.';
