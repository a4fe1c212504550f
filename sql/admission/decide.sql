-- What oml_promote, oml_demote, oml_reassign and oml_end_simulation have in common: the verb says the permission.
create function oml.decide(
  verb text, artifact uuid, reason text, version bigint, workarea text, tenant text,
  idempotency_key text, operation text, app_version text
)
returns oml.receipt
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  actor record;
  digest bytea;
  first oml.receipt;
  place record;
  judged oml.version_row;
  details jsonb := '{}';
begin
  actor := oml.caller(tenant, array(select distinct l.permission from oml.lifecycle() l where l.verb = decide.verb), true);
  perform oml.require_claims(reason, idempotency_key, operation, app_version, workarea);
  if verb <> 'promote' and coalesce(btrim(reason), '') = '' then
    raise exception using
      errcode = 'OM212', message = format('%s needs a reason', verb), hint = 'It is signed into the event: a ticket number, for example.';
  end if;
  perform oml.lock_chain(actor.tenant_id);
  if idempotency_key is not null then
    digest := sha256(convert_to(jsonb_build_array(actor.auth, verb, artifact, reason, version, workarea, operation, app_version)::text, 'UTF8'));
    first := oml.first_receipt(actor.tenant_id, actor.principal, idempotency_key, digest);
    if first.seq is not null then
      return first;
    end if;
  end if;
  judged := oml.find_version(actor.tenant_id, artifact, version);
  if verb = 'reassign' then
    place := oml.find_workarea(actor.tenant_id, workarea);
    if place.workarea_id = judged.workarea_id then
      raise exception using
        errcode = 'OM229', message = format('%s/%s lies in workarea %L already', judged.artifact_id, judged.version, place.path),
        hint = 'Name another one: oml_workareas() lists them.';
    end if;
    details := jsonb_build_object('workarea_id', place.workarea_id, 'path', place.path);
  end if;
  return oml.transit(
    actor.tenant_id, actor.principal, actor.auth, verb, judged, reason, details,
    idempotency_key, digest, operation, app_version
  );
end
$$;
