-- A workarea by its path or its id. With a principal, as a member of it: a stranger's workarea looks like none.
create function oml.find_workarea(
  tenant_id uuid, workarea text, member text default null, out workarea_id uuid, out path text
)
returns record
language plpgsql
volatile
-- search_path: pinned by its callers
as $$
#variable_conflict use_column
begin
  select w.workarea_id, w.path into workarea_id, path
  from oml.workarea w
  where w.tenant_id = find_workarea.tenant_id and w.path = find_workarea.workarea
    and (member is null or exists (
      select from oml.workarea_member m
      where m.tenant_id = w.tenant_id and m.workarea_id = w.workarea_id and m.principal = member and m.is_member
    ));
  if not found and workarea ~* '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$' then
    select w.workarea_id, w.path into workarea_id, path
    from oml.workarea w
    where w.tenant_id = find_workarea.tenant_id and w.workarea_id = find_workarea.workarea::uuid
      and (member is null or exists (
        select from oml.workarea_member m
        where m.tenant_id = w.tenant_id and m.workarea_id = w.workarea_id and m.principal = member and m.is_member
      ));
  end if;
  if workarea_id is null then
    raise exception using
      errcode = 'OM190',
      message = case when member is null then format('there is no workarea %L', left(workarea, 80))
        else format('there is no workarea %L that principal %L is a member of', left(workarea, 80), member) end,
      hint = 'Name a workarea by its path or id. An operator of the tenant makes one with oml_create_workarea(), and members with oml_add_member().';
  end if;
end
$$;
