-- The gate's row has copies of the settings that every append needs. Whoever opens the gate locks the
-- instance's row and changes it, and so does this: of a change and an opening the later one sees the
-- earlier, or under a snapshot from before it is 40001.
create function oml.copy_settings()
returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.lock_instance();
  update oml.instance i set opened_at = i.opened_at;
  update oml.gate g
  set signer = (select s.value from oml.setting s where s.name = 'signer'),
    deployment_id = (select s.value from oml.setting s where s.name = 'deployment_id')::uuid,
    profile = (select s.value from oml.setting s where s.name = 'profile');
  return null;
end
$$;
