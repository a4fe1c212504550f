create function oml.tlog_state()
returns table (
  deployment_id uuid, tlog_url text, fence_synchronous_commit text, frontier bigint, outbox_max bigint,
  losses bigint, gate text, instance jsonb
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate', 'audit');
  return query
  select
    (select s.value from oml.setting s where s.name = 'deployment_id')::uuid,
    (select s.value from oml.setting s where s.name = 'tlog_url'),
    coalesce((select s.value from oml.setting s where s.name = 'fence_synchronous_commit'), 'on'),
    f.seq, (select coalesce(max(o.seq), 0) from oml.outbox o),
    (select coalesce(sum(l.generation - 1), 0) from oml.tlog l)::bigint,
    g.state, g.instance
  from oml.frontier f
  cross join oml.gate_state() g
  where f.name = 'tlog';
end
$$;
comment on function oml.tlog_state()
  is 'How far the tlog has come, its settings, and whether the write gate is open. Needs operate or audit on the provider.';
