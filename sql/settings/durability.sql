-- What oml doctor must know and cannot read as the login it is. The rest is in PostgreSQL's own views,
-- which it reads with its own rights: what they hide from that login, it says it cannot see.
create function oml.durability()
returns table (
  profile text, fence_synchronous_commit text, lake_url text, tlog_url text, outbox_max bigint, outbox_last bigint,
  gate_open boolean, gate_reason text
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  gate record;
begin
  perform oml.require_provider('operate', 'audit');
  gate := oml.gate_state();
  return query
  select
    max(s.value) filter (where s.name = 'profile'),
    coalesce(max(s.value) filter (where s.name = 'fence_synchronous_commit'), 'on'),
    max(s.value) filter (where s.name = 'lake_url'),
    max(s.value) filter (where s.name = 'tlog_url'),
    (select coalesce(max(o.seq), 0) from oml.outbox o),
    (select case when q.is_called then q.last_value else 0 end from oml.outbox_seq q),
    gate.state = 'open', gate.reason
  from oml.setting s;
end
$$;
comment on function oml.durability()
  is 'Profile, places, the outbox''s ends and the write gate, for oml doctor. Needs operate or audit on the provider.';
