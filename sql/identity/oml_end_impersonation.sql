create function @extschema@.oml_end_impersonation(session_id uuid)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_operator();
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
  is 'End an impersonation session, one''s own or anybody''s, journalled on the provider chain; false when there was none to end. Needs operate on the provider.';
