create function @extschema@.oml_create_workarea(path text, tenant text default null)
returns uuid
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  actor record;
  workarea_id uuid := gen_random_uuid();
begin
  actor := oml.caller(tenant, '{operate}', true);
  perform oml.require_path(actor.tenant_id, path);  -- before others wait for it, and once they cannot take it
  perform oml.lock_chain(actor.tenant_id);
  perform oml.require_path(actor.tenant_id, path);
  perform oml.append_admission(actor.tenant_id, actor.principal, actor.auth, array[
    oml.admission_item('workarea.created', jsonb_build_object('workarea_id', workarea_id, 'path', path))
  ]);
  return workarea_id;
end
$$;
comment on function @extschema@.oml_create_workarea(text, text)
  is 'Make a workarea and return its id, which stays when it moves. Needs operate on the tenant.';
