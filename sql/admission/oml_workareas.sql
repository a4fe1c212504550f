-- Who operates the tenant sees all of them with their members; anybody else those it is a member of.
create function @extschema@.oml_workareas(tenant text default null)
returns table (workarea_id uuid, path text, is_member boolean, members text[])
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  actor record;
begin
  actor := oml.caller(oml_workareas.tenant, '{operate,submit,append,review,audit}', false);
  return query
  select w.workarea_id, w.path, coalesce(bool_or(m.principal = actor.principal), false),
    case when actor.auth = 'membership:operate' then array_remove(array_agg(m.principal order by m.principal), null) end
  from oml.workarea w
  left join oml.workarea_member m on m.tenant_id = w.tenant_id and m.workarea_id = w.workarea_id and m.is_member
    and (actor.auth = 'membership:operate' or m.principal = actor.principal)
  where w.tenant_id = actor.tenant_id
  group by w.workarea_id, w.path
  having actor.auth = 'membership:operate' or count(m.principal) > 0
  order by w.path;
end
$$;
comment on function @extschema@.oml_workareas(text)
  is 'The workareas that the caller is a member of; for who has operate on the tenant all of them, with their members.';
