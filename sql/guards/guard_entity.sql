-- An entity's row only ever moves on to a later event.
create function oml.guard_entity()
returns trigger
language plpgsql
-- search_path: pinned by its callers
as $$
begin
  if (new.tenant_id, new.entity_type, new.entity_id, new.first_at) is distinct from (old.tenant_id, old.entity_type, old.entity_id, old.first_at)
    or new.last_seq <= old.last_seq or new.event_count <= old.event_count
  then
    raise exception using
      errcode = 'OM066',
      message = format('entity %s %L may not go from event %s back to %s', old.entity_type, old.entity_id, old.last_seq, new.last_seq),
      hint = 'It is folded from the journal: append an event to change it.';
  end if;
  return new;
end
$$;
