-- Whether a principal may read a version: its author always; a member of its workarea once it is released.
create function oml.may_read(tenant_id uuid, workarea_id uuid, author text, state text, principal text)
returns boolean
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return author = principal or (oml.is_released(state) and exists (
    select from oml.workarea_member m
    where m.tenant_id = may_read.tenant_id and m.workarea_id = may_read.workarea_id
      and m.principal = may_read.principal and m.is_member
  ));
end
$$;
