create function @extschema@.oml_add_member(workarea text, principal text, tenant text default null)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.set_member(workarea, principal, tenant, true);
end
$$;
comment on function @extschema@.oml_add_member(text, text, text)
  is 'Let a principal submit to a workarea (with the permission submit) and read what is released in it. Nothing happens if it is a member. Needs operate on the tenant.';
