create function oml.tlog_state()
returns table (
  deployment_id uuid, tlog_url text, fence_synchronous_commit text, frontier bigint, outbox_max bigint,
  losses bigint
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
    (select coalesce(sum(l.generation - 1), 0) from oml.tlog l)::bigint
  from oml.frontier f
  where f.name = 'tlog';
end
$$;
comment on function oml.tlog_state()
  is 'How far the tlog has come, and its settings. Needs operate or audit on the provider.';
