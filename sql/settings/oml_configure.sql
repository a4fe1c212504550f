-- Not granted to anyone: a superuser runs it. deployment_id and deployment are facts of the provider
-- chain and no settings of choice.
create function @extschema@.oml_configure(name text, value text)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_genesis();
  if current_setting('transaction_read_only')::bool then
    perform oml.refuse_read_only();
  end if;
  if name is null or name not in ('signer', 'lake_url', 'bodies_url', 'quarantine_url', 'tlog_url', 'fence_synchronous_commit', 'gate_evidence', 'profile') then
    raise exception using
      errcode = 'OM022', message = format('there is no setting %L to configure', name),
      hint = 'Settings are signer, lake_url, bodies_url, quarantine_url, tlog_url, fence_synchronous_commit, gate_evidence and profile.';
  end if;
  if value is null
    or (name = 'signer' and value !~ '^(file|unix):/')
    or (name in ('lake_url', 'bodies_url', 'quarantine_url', 'tlog_url') and value !~ '^(file:///|s3://)')
    or (name = 'gate_evidence' and value not in ('required', 'reachable'))
    or (name = 'fence_synchronous_commit' and value not in ('local', 'remote_write', 'on', 'remote_apply'))
    or (name = 'profile' and value not in ('local', 'production'))
  then
    raise exception using
      errcode = 'OM023', message = format('%L is no value for %s', value, name),
      hint = 'signer: file: or unix: and an absolute path. lake_url: file:/// or s3:// and a place. bodies_url, quarantine_url and tlog_url: likewise. fence_synchronous_commit: local, remote_write, on or remote_apply. gate_evidence: required or reachable. profile: local or production.';
  end if;
  if name = 'signer' then
    perform oml.signer_public_key(value, oml.lock_provider());  -- it must hold the key in force
  end if;
  if name = 'profile' and value = 'production' then
    perform oml.require_quorum();  -- or the next append would be refused
  end if;
  insert into oml.setting as s (name, value) values (oml_configure.name, oml_configure.value)
  on conflict on constraint setting_pkey do update set value = excluded.value;
  if name = 'profile' then
    perform oml.switch_guard_commit(value);  -- after copy_settings: the instance before the journal, as an append
  end if;
end
$$;
comment on function @extschema@.oml_configure(text, text) is 'Change a deployment setting: signer, lake_url, bodies_url, quarantine_url, tlog_url, fence_synchronous_commit, gate_evidence or profile. Superuser only.';
