-- What the journal says of workareas, submissions and reviews: the rows that oml.fold_admission makes event by
-- event, had by sets. Also each step that could not have been made: a change of state that the lifecycle does not have, a
-- verdict by the author or without a serve, simulation taken off. Stable: see folded_admission.
create function oml.replayed_admission(chain_id uuid)
returns table (tenant_id uuid, entity_type text, entity_id text, content jsonb)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set enable_nestloop = off -- the planner takes each of these sets for a handful of rows
set jit = off -- which the price that it puts on that would call for
as $$
#variable_conflict use_column
begin
  return query
  with event as materialized (
    select j.tenant_id, j.seq, j.type, j.occurred_at, j.principal, j.artifact_id, j.artifact_version as version,
      j."authorization" as auth, j.plaintext_digest, j.ciphertext_digest, j.payload as said
    from oml.journal j
    where split_part(j.type, '.', 1) in ('workarea', 'submission', 'review', 'artifact') and (chain_id is null or j.tenant_id = chain_id)
  ),
  step as (
    select e.*, lag(e.said ->> 'to') over version_steps as was, first_value(e.said ->> 'provenance') over version_steps as provenance,
      first_value(e.principal) over version_steps as author
    from event e
    where e.said ? 'to'
    window version_steps as (partition by e.tenant_id, e.artifact_id, e.version order by e.seq)
  ),
  last_step as (
    select distinct on (s.tenant_id, s.artifact_id, s.version) s.* from step s order by s.tenant_id, s.artifact_id, s.version, s.seq desc
  ),
  verdict as (
    select distinct on (s.tenant_id, s.artifact_id, s.version) s.tenant_id, s.artifact_id, s.version, s.principal
    from step s where s.type = 'review.verdict' order by s.tenant_id, s.artifact_id, s.version, s.seq desc
  ),
  placed as (
    select distinct on (s.tenant_id, s.artifact_id, s.version) s.tenant_id, s.artifact_id, s.version, s.said ->> 'workarea_id' as workarea_id
    from step s where s.said ? 'workarea_id' order by s.tenant_id, s.artifact_id, s.version, s.seq desc
  ),
  served_to as (
    select e.tenant_id, e.artifact_id, e.version, e.principal, min(e.seq) as first_seq
    from event e where e.type = 'review.serve' group by 1, 2, 3, 4
  ),
  made as (
    select e.tenant_id, e.artifact_id, e.version, e.said ->> 'provenance' as made_as,
      lag(e.said ->> 'provenance') over (partition by e.tenant_id, e.artifact_id order by e.version) as made_before
    from event e where e.type = 'submission.submit'
  ),
  of_simulated as (
    select distinct e.tenant_id, e.artifact_id, e.version, true as is_of_simulated
    from event e
    cross join jsonb_array_elements(e.said -> 'derived_from') d
    join made m on m.tenant_id = e.tenant_id and m.artifact_id = (d ->> 'artifact_id')::uuid and m.version = (d ->> 'version')::bigint
    where e.type = 'submission.submit' and m.made_as = 'simulated'
  ),
  workarea as (
    select e.tenant_id, e.said ->> 'workarea_id' as workarea_id, min(e.seq) as created_seq, max(e.seq) as last_seq,
      (array_agg(e.said ->> 'path' order by e.seq desc))[1] as path
    from event e where e.type in ('workarea.created', 'workarea.moved') group by 1, 2
  )
  select w.tenant_id, 'oml.workarea', w.workarea_id, jsonb_build_object('path', w.path, 'created_seq', w.created_seq, 'last_seq', w.last_seq)
  from workarea w
  union all
  select m.tenant_id, 'oml.workarea_member', concat_ws('/', m.said ->> 'workarea_id', m.said ->> 'principal'),
    jsonb_build_object('is_member', m.type = 'workarea.joined', 'last_seq', m.seq)
  from (
    select distinct on (e.tenant_id, e.said ->> 'workarea_id', e.said ->> 'principal') e.*
    from event e where e.type in ('workarea.joined', 'workarea.left')
    order by e.tenant_id, e.said ->> 'workarea_id', e.said ->> 'principal', e.seq desc
  ) m
  union all
  select e.tenant_id, 'oml.artifact_version', concat_ws('/', e.artifact_id, e.version), jsonb_build_object(
    'workarea_id', p.workarea_id, 'path', e.said ->> 'path', 'author', e.principal, 'provenance', e.said ->> 'provenance',
    'media_type', e.said ->> 'media_type', 'bytes', (e.said ->> 'bytes')::bigint, 'attachments', jsonb_array_length(e.said -> 'attachments'),
    'plaintext_digest', e.plaintext_digest, 'ciphertext_digest', e.ciphertext_digest, 'dek_id', e.said ->> 'dek_id',
    'submitted_seq', e.seq, 'submitted_at', e.occurred_at, 'state', l.said ->> 'to', 'state_seq', l.seq,
    'reviewer', v.principal, 'reason', l.said ->> 'reason'
  )
  from event e
  join last_step l using (tenant_id, artifact_id, version)
  join placed p using (tenant_id, artifact_id, version)
  left join verdict v using (tenant_id, artifact_id, version)
  where e.type = 'submission.submit'
  union all
  select e.tenant_id, 'oml.attachment', concat_ws('/', e.artifact_id, e.version, e.said ->> 'part'), jsonb_build_object(
    'name', e.said ->> 'name', 'media_type', e.said ->> 'media_type', 'bytes', (e.said ->> 'bytes')::bigint,
    'plaintext_digest', e.plaintext_digest, 'ciphertext_digest', e.ciphertext_digest, 'attached_seq', e.seq
  )
  from event e where e.type = 'submission.attach'
  union all
  select e.tenant_id, 'oml.derived_from', concat_ws('/', e.artifact_id, e.version, s ->> 'artifact_id', s ->> 'version'), '{}'
  from event e cross join jsonb_array_elements(e.said -> 'derived_from') s
  where e.type = 'submission.submit'
  union all
  select e.tenant_id, 'oml.served', concat_ws('/', e.artifact_id, e.version, p ->> 'part', e.principal), jsonb_build_object('served_seq', max(e.seq))
  from event e cross join jsonb_array_elements(e.said -> 'parts') p
  where e.type = 'review.serve'
  group by e.tenant_id, e.artifact_id, e.version, p ->> 'part', e.principal
  union all
  select e.tenant_id, 'oml.artifact_event', concat_ws('/', e.artifact_id, e.seq), '{}'
  from event e where e.artifact_id is not null
  union all
  select s.tenant_id, 'oml.lifecycle', concat_ws('/', s.artifact_id, s.version, s.seq), s.said
  from step s
  left join served_to t using (tenant_id, artifact_id, version, principal)
  left join made m using (tenant_id, artifact_id, version)
  left join of_simulated o using (tenant_id, artifact_id, version)
  where (s.type = 'review.verdict' and (s.principal = s.author or t.first_seq is null or t.first_seq > s.seq))
    or (s.type = 'submission.submit' and m.made_as <> 'simulated' and (m.made_before = 'simulated' or o.is_of_simulated))
    or not exists (
    select from oml.lifecycle() l
    where l.event_type = s.type and l.from_state is not distinct from s.was and l.to_state = s.said ->> 'to'
      and (s.said ->> 'from') is not distinct from s.was and s.auth = 'membership:' || l.permission
      and (not l.simulated_only or s.provenance = 'simulated')
  );
end
$$;
