-- The state of workareas, submissions and reviews as it is kept, for oml_fold_check. Stable: in its snapshot.
create function oml.folded_admission(chain_id uuid)
returns table (tenant_id uuid, entity_type text, entity_id text, content jsonb)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  select w.tenant_id, 'oml.workarea', w.workarea_id::text, to_jsonb(w) - '{tenant_id,workarea_id}'::text[]
  from oml.workarea w where chain_id is null or w.tenant_id = chain_id
  union all
  select m.tenant_id, 'oml.workarea_member', concat_ws('/', m.workarea_id, m.principal), to_jsonb(m) - '{tenant_id,workarea_id,principal}'::text[]
  from oml.workarea_member m where chain_id is null or m.tenant_id = chain_id
  union all
  select v.tenant_id, 'oml.artifact_version', concat_ws('/', v.artifact_id, v.version), to_jsonb(v) - '{tenant_id,artifact_id,version}'::text[]
  from oml.artifact_version v where chain_id is null or v.tenant_id = chain_id
  union all
  select a.tenant_id, 'oml.attachment', concat_ws('/', a.artifact_id, a.version, a.part), to_jsonb(a) - '{tenant_id,artifact_id,version,part}'::text[]
  from oml.attachment a where chain_id is null or a.tenant_id = chain_id
  union all
  select d.tenant_id, 'oml.derived_from', concat_ws('/', d.artifact_id, d.version, d.source_artifact_id, d.source_version), '{}'
  from oml.derived_from d where chain_id is null or d.tenant_id = chain_id
  union all
  select s.tenant_id, 'oml.served', concat_ws('/', s.artifact_id, s.version, s.part, s.principal), jsonb_build_object('served_seq', s.served_seq)
  from oml.served s where chain_id is null or s.tenant_id = chain_id
  union all
  select e.tenant_id, 'oml.artifact_event', concat_ws('/', e.artifact_id, e.seq), '{}'
  from oml.artifact_event e where chain_id is null or e.tenant_id = chain_id;
end
$$;
