-- One statement, so one snapshot of journal and entities: an append beside it is in both or in neither.
-- Compared as text, since to jsonb 1.0 equals 1.00.
create function @extschema@.oml_fold_check(tenant text default null)
returns table (chain text, entity_type text, entity_id text, difference text, expected jsonb, found jsonb)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  chain_id uuid;
begin
  if oml_fold_check.tenant is null then
    perform oml.require_provider('audit');
  else
    perform oml.require_genesis();
    select t.tenant_id into chain_id from oml.tenant t where t.name = oml_fold_check.tenant;
    perform oml.require_audit(chain_id);
    if chain_id is null then
      raise exception using
        errcode = 'OM003', message = format('there is no tenant %L', oml_fold_check.tenant),
        hint = 'oml verify lists the tenants of the provider chain.';
    end if;
  end if;
  return query
  with event as not materialized (
    select j.tenant_id, j.entity_type, j.entity_id, j.seq, j.event_id, j.type, j.occurred_at, j.payload, t.state_keys
    from oml.journal j
    left join oml.event_type t on t.type = j.type and t.schema_version = j.schema_version
    where j.entity_type is not null and j.entity_id is not null and (chain_id is null or j.tenant_id = chain_id)
  ),
  span as (
    select e.tenant_id, e.entity_type, e.entity_id, min(e.seq) as first_seq, max(e.seq) as last_seq, count(*) as event_count
    from event e
    group by e.tenant_id, e.entity_type, e.entity_id
  ),
  state as (
    select v.tenant_id, v.entity_type, v.entity_id, jsonb_object_agg(v.key, v.value) as state
    from (
      select distinct on (e.tenant_id, e.entity_type, e.entity_id, k.key)
        e.tenant_id, e.entity_type, e.entity_id, k.key, e.payload -> k.key as value
      from event e
      cross join unnest(e.state_keys) k (key)
      where e.payload ? k.key
      order by e.tenant_id, e.entity_type, e.entity_id, k.key, e.seq desc
    ) v
    group by v.tenant_id, v.entity_type, v.entity_id
  ),
  replayed as (
    select s.tenant_id, s.entity_type, s.entity_id, jsonb_build_object(
      'last_seq', s.last_seq, 'last_event_id', l.event_id, 'last_type', l.type, 'event_count', s.event_count,
      'first_at', f.occurred_at, 'last_at', l.occurred_at, 'state', coalesce(v.state, '{}')
    ) as row
    from span s
    join oml.journal f on f.tenant_id = s.tenant_id and f.seq = s.first_seq
    join oml.journal l on l.tenant_id = s.tenant_id and l.seq = s.last_seq
    left join state v on (v.tenant_id, v.entity_type, v.entity_id) = (s.tenant_id, s.entity_type, s.entity_id)
    union all
    select a.tenant_id, a.entity_type, a.entity_id, a.content from oml.replayed_admission(chain_id) a
  ),
  folded as (
    select e.tenant_id, e.entity_type, e.entity_id, jsonb_build_object(
      'last_seq', e.last_seq, 'last_event_id', e.last_event_id, 'last_type', e.last_type, 'event_count', e.event_count,
      'first_at', e.first_at, 'last_at', e.last_at, 'state', e.state
    ) as row
    from oml.entity e
    where chain_id is null or e.tenant_id = chain_id
    union all
    select a.tenant_id, a.entity_type, a.entity_id, a.content from oml.folded_admission(chain_id) a
  )
  select
    coalesce(n.name, d.tenant_id::text), d.entity_type, d.entity_id,
    case when d.entity_type = 'oml.lifecycle' then 'not allowed' when d.found is null then 'missing' when d.expected is null then 'extra' else 'different' end,
    d.expected, d.found
  from (
    select
      coalesce(r.tenant_id, f.tenant_id) as tenant_id, coalesce(r.entity_type, f.entity_type) as entity_type,
      coalesce(r.entity_id, f.entity_id) as entity_id, r.row as expected, f.row as found
    from replayed r
    full join folded f on f.tenant_id = r.tenant_id and f.entity_type = r.entity_type and f.entity_id = r.entity_id
    where r.row::text is distinct from f.row::text
  ) d
  left join oml.tenant n on n.tenant_id = d.tenant_id
  order by 1, 2, 3;
end
$$;
comment on function @extschema@.oml_fold_check(text)
  is 'Replay a tenant''s journal, or all of them, and compare with the state that is kept: each entity, and each row about a workarea, a submission or a review, that is missing, extra or different, with both sides; and each change of state that the lifecycle does not have. Empty when all is well. Needs audit on the tenant, on the provider for all.';
