-- For whoever but the kernel inserts into the journal: its oml_append and append_events see to what their
-- events imply by themselves. Only who acts as oml_kernel, which takes a superuser, gets around that.
create function oml.derive()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_user <> 'oml_kernel' then
    perform oml.derive_events(a.tenant_id, array_agg(a.seq)), oml.fold_admission(a.tenant_id, array_agg(a.seq))
    from appended a group by a.tenant_id;
  end if;
  return null;
end
$$;
