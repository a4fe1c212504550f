create function @extschema@.oml_remove_member(workarea text, principal text, tenant text default null)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.set_member(workarea, principal, tenant, false);
end
$$;
comment on function @extschema@.oml_remove_member(text, text, text)
  is 'End a principal''s membership of a workarea. What it submitted stays its own to read. Needs operate on the tenant.';
