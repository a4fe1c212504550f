create function oml.set_member(workarea text, principal text, tenant text, is_member boolean)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  actor record;
  place record;
begin
  actor := oml.caller(tenant, '{operate}', true);
  if octet_length(principal) is null or octet_length(convert_to(principal, 'UTF8')) not between 1 and 256 then
    raise exception using
      errcode = 'OM009', message = format('a principal of %s bytes', coalesce(octet_length(principal), 0)),
      hint = 'A principal has 1 to 256 bytes: the login''s name, unless it was granted under another.';
  end if;
  perform oml.require_claims(workarea);
  perform oml.lock_chain(actor.tenant_id);
  place := oml.find_workarea(actor.tenant_id, workarea);
  if is_member = exists (
    select from oml.workarea_member m
    where m.tenant_id = actor.tenant_id and m.workarea_id = place.workarea_id and m.principal = set_member.principal and m.is_member
  ) then
    -- The commit that made it so may have been cut short in its wait for standbys: see oml.first_receipt.
    perform pg_logical_emit_message(true, 'oml.receipt', '');
    return;
  end if;
  perform oml.append_admission(actor.tenant_id, actor.principal, actor.auth, array[oml.admission_item(
    case when is_member then 'workarea.joined' else 'workarea.left' end,
    jsonb_build_object('workarea_id', place.workarea_id, 'principal', principal)
  )]);
end
$$;
