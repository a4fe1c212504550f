-- movable is how far the bodies may follow: the lake's frontier, as far as it is fenced.
create function oml.bodies_state()
returns table (
  lake_url text, bodies_url text, quarantine_url text, tlog_url text, frontier bigint, movable bigint, gate text
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
    (select s.value from oml.setting s where s.name = 'lake_url'),
    (select s.value from oml.setting s where s.name = 'bodies_url'),
    (select s.value from oml.setting s where s.name = 'quarantine_url'),
    (select s.value from oml.setting s where s.name = 'tlog_url'),
    (select f.seq from oml.frontier f where f.name = 'bodies'),
    (select least(f.seq, f.fenced_seq) from oml.frontier f where f.name = 'lake'),
    (select g.state from oml.gate_state() g);
end
$$;
comment on function oml.bodies_state()
  is 'Where the stores are by the database''s settings, and how far bodies have been moved and may be. Needs operate or audit on the provider.';
