create function oml.deployment_id()
returns text
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_genesis();
  return (select s.value from oml.setting s where s.name = 'deployment_id');
end
$$;
comment on function oml.deployment_id()
  is 'The deployment''s id, which is the provider tenant''s id.';
