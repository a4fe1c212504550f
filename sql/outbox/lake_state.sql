create function oml.lake_state()
returns table (
  deployment_id text, lake_url text, fence_synchronous_commit text,
  frontier bigint, fenced_seq bigint, outbox_max bigint, gate text, instance jsonb
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
    (select s.value from oml.setting s where s.name = 'deployment_id'),
    (select s.value from oml.setting s where s.name = 'lake_url'),
    coalesce((select s.value from oml.setting s where s.name = 'fence_synchronous_commit'), 'on'),
    f.seq, f.fenced_seq, (select coalesce(max(o.seq), 0) from oml.outbox o),
    g.state, g.instance
  from oml.frontier f
  cross join oml.gate_state() g
  where f.name = 'lake';
end
$$;
comment on function oml.lake_state()
  is 'Where the lake stands, its settings, and whether the write gate is open. Needs operate or audit on the provider.';
