create function @extschema@.oml_end_impersonation(session_id uuid)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  own boolean;
begin
  if current_setting('transaction_read_only')::bool then
    perform oml.refuse_read_only();
  end if;
  perform oml.require_genesis();
  unlisten oml_restricted; -- fails inside maintenance that runs another's code: see oml_append
  select i.login = session_user into own
  from oml.impersonation i where i.session_id = oml_end_impersonation.session_id;
  if own is not true then
    perform oml.require_provider('operate');
  end if;
  update oml.impersonation i set ended_at = clock_timestamp()
  where i.session_id = oml_end_impersonation.session_id and i.ended_at is null;
  if not found then
    return false;
  end if;
  perform oml.append_provider_event('impersonation.ended', jsonb_build_object('session_id', session_id));
  return true;
end
$$;
comment on function @extschema@.oml_end_impersonation(uuid)
  is 'End an impersonation session, one''s own or, with operate on the provider, anybody''s; false when there was none to end.';
