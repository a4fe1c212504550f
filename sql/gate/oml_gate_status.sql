create function @extschema@.oml_gate_status()
returns table (
  is_open boolean, state text, reason text, instance jsonb, opened_last jsonb, opened_last_at timestamptz,
  opened_at timestamptz, opened_by text, evidence jsonb, policy text
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  now record;
begin
  perform oml.require_provider('audit', 'operate');
  now := oml.gate_state();
  is_open := now.state = 'open';
  state := now.state;
  reason := now.reason;
  instance := now.instance;
  opened_last := now.last;
  select i.opened_at into opened_last_at from oml.instance i;
  if is_open then
    select g.opened_at, g.opened_by, g.evidence into opened_at, opened_by, evidence from oml.gate g;
  end if;
  select coalesce((select s.value from oml.setting s where s.name = 'gate_evidence'), 'required') into policy;
  return next;
end
$$;
comment on function @extschema@.oml_gate_status()
  is 'Whether the write gate is open, and why not: this instance, the one that was opened last, and by whom and on what evidence it was opened. Needs audit or operate on the provider.';
