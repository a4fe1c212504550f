-- The gate's row has copies of the settings that every append needs. Whoever opens the gate holds the
-- instance's lock: so of a change and an opening, the later one sees the earlier. It is updated, and not
-- locked alone, for whoever opens under an older snapshot, which would miss the change: that gets 40001.
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
