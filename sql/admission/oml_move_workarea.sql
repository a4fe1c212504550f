-- What was submitted before keeps the path it was submitted under.
create function @extschema@.oml_move_workarea(workarea text, path text, tenant text default null)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  actor record;
  moved record;
begin
  actor := oml.caller(tenant, '{operate}', true);
  perform oml.require_claims(workarea);
  perform oml.require_path(actor.tenant_id, path);  -- before others wait for it, and once they cannot take it
  perform oml.lock_chain(actor.tenant_id);
  moved := oml.find_workarea(actor.tenant_id, workarea);
  perform oml.require_path(actor.tenant_id, path);
  perform oml.append_admission(actor.tenant_id, actor.principal, actor.auth, array[
    oml.admission_item('workarea.moved', jsonb_build_object('workarea_id', moved.workarea_id, 'from', moved.path, 'path', path))
  ]);
end
$$;
comment on function @extschema@.oml_move_workarea(text, text, text)
  is 'Give a workarea another path. Its id stays, and so does the path in what was submitted before. Needs operate on the tenant.';
