-- Hangs off the journal's insert, so that no path writes an event without its entity's state. What one
-- event makes of an entity, many in a statement make in the order of their seqs. A single event, which
-- most statements insert, needs no grouping: that alone would be a twentieth of an append.
create function oml.fold()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  events bigint;
begin
  select count(*) into events from appended a where a.entity_type is not null and a.entity_id is not null;
  if events = 1 then
    insert into oml.entity as e (
      tenant_id, entity_type, entity_id, last_seq, last_event_id, last_type, event_count, first_at, last_at, state
    )
    select
      a.tenant_id, a.entity_type, a.entity_id, a.seq, a.event_id, a.type, 1, a.occurred_at, a.occurred_at, coalesce((
        select jsonb_object_agg(k.key, a.payload -> k.key)
        from oml.event_type t
        cross join unnest(t.state_keys) k (key)
        where t.type = a.type and t.schema_version = a.schema_version and a.payload ? k.key
      ), '{}')
    from appended a
    where a.entity_type is not null and a.entity_id is not null
    on conflict on constraint entity_pkey do update set
      last_seq = excluded.last_seq, last_event_id = excluded.last_event_id, last_type = excluded.last_type,
      event_count = e.event_count + 1, last_at = excluded.last_at, state = e.state || excluded.state;
  elsif events > 1 then
    insert into oml.entity as e (
      tenant_id, entity_type, entity_id, last_seq, last_event_id, last_type, event_count, first_at, last_at, state
    )
    select
      a.tenant_id, a.entity_type, a.entity_id, max(a.seq),
      (array_agg(a.event_id order by a.seq desc))[1], (array_agg(a.type order by a.seq desc))[1],
      count(distinct a.seq),
      (array_agg(a.occurred_at order by a.seq))[1], (array_agg(a.occurred_at order by a.seq desc))[1],
      coalesce(jsonb_object_agg(k.key, a.payload -> k.key order by a.seq) filter (where k.key is not null), '{}')
    from appended a
    left join oml.event_type t on t.type = a.type and t.schema_version = a.schema_version
    left join unnest(t.state_keys) k (key) on a.payload ? k.key
    where a.entity_type is not null and a.entity_id is not null
    group by a.tenant_id, a.entity_type, a.entity_id
    on conflict on constraint entity_pkey do update set
      last_seq = excluded.last_seq, last_event_id = excluded.last_event_id, last_type = excluded.last_type,
      event_count = e.event_count + excluded.event_count, last_at = excluded.last_at, state = e.state || excluded.state;
  end if;
  return null;
end
$$;
