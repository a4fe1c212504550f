-- What oml_append derives of one event, derived of several of one chain that were just inserted: their outbox
-- rows, and their entities' states, which many make in the order of their seqs as one after another would.
-- The sort lies below the INSERT, whose default draws the numbers: so they are queued in chain order.
create function oml.derive_events(tenant_id uuid, seqs bigint[])
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  is_whole boolean;
begin
  with due as materialized (
    select j.tenant_id, j.seq, t.target, t.nth
    from oml.journal j
    left join oml.event_type e on e.type = j.type and e.schema_version = j.schema_version
    cross join unnest(coalesce(e.targets, '{bronze.events}')) with ordinality t (target, nth)
    where j.tenant_id = derive_events.tenant_id and j.seq = any (derive_events.seqs)
  ),
  queued as (
    insert into oml.outbox (tenant_id, chain_seq, target)
    select d.tenant_id, d.seq, d.target from due d order by d.seq, d.nth
    returning 1
  )
  select (select count(*) from due) = (select count(*) from queued) into is_whole;
  if not is_whole then
    perform oml.refuse_unstored();
  end if;

  with due as materialized (
    select
      j.tenant_id, j.entity_type, j.entity_id, max(j.seq) as last_seq,
      (array_agg(j.event_id order by j.seq desc))[1] as last_event_id, (array_agg(j.type order by j.seq desc))[1] as last_type,
      count(distinct j.seq) as event_count,
      (array_agg(j.occurred_at order by j.seq))[1] as first_at, (array_agg(j.occurred_at order by j.seq desc))[1] as last_at,
      coalesce(jsonb_object_agg(k.key, j.payload -> k.key order by j.seq) filter (where k.key is not null), '{}') as state
    from oml.journal j
    left join oml.event_type t on t.type = j.type and t.schema_version = j.schema_version
    left join unnest(t.state_keys) k (key) on j.payload ? k.key
    where j.tenant_id = derive_events.tenant_id and j.seq = any (derive_events.seqs)
      and j.entity_type is not null and j.entity_id is not null
    group by j.tenant_id, j.entity_type, j.entity_id
  ),
  folded as (
    insert into oml.entity as e (
      tenant_id, entity_type, entity_id, last_seq, last_event_id, last_type, event_count, first_at, last_at, state
    )
    select * from due
    on conflict on constraint entity_pkey do update set
      last_seq = excluded.last_seq, last_event_id = excluded.last_event_id, last_type = excluded.last_type,
      event_count = e.event_count + excluded.event_count, last_at = excluded.last_at, state = e.state || excluded.state
    returning 1
  )
  select (select count(*) from due) = (select count(*) from folded) into is_whole;
  if not is_whole then
    perform oml.refuse_unstored();
  end if;
end
$$;
