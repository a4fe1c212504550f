create function @extschema@.oml_fork_check()
returns table (tenant text, seq bigint, class text, reason text)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform oml.require_provider('audit', 'operate');
  return query
  select f.tenant, f.seq, f.class, f.reason
  from oml.fork_faults((select s.value from oml.setting s where s.name = 'deployment_id')) f;
end
$$;
comment on function @extschema@.oml_fork_check()
  is 'The database''s own part of the check before the write gate is opened: each chain''s last event is proved and linked to the one before. A row a fault; none when all is well. Needs audit or operate on the provider.';
