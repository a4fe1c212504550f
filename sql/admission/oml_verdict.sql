-- A verdict is on the bytes that were served: the body and every attachment of just this version, to this
-- reviewer, who is not the author. What the reviewer's client scanned goes into the event, as its claim.
create function @extschema@.oml_verdict(
  artifact uuid,
  verdict text,
  reason text default null,
  version bigint default null,
  tenant text default null,
  report jsonb default null,
  accept_findings boolean default false,
  idempotency_key text default null,
  operation text default null,
  app_version text default null
)
returns oml.receipt
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  actor record;
  digest bytea;
  first oml.receipt;
  judged oml.version_row;
  parts jsonb;
begin
  actor := oml.caller(tenant, array(select distinct l.permission from oml.lifecycle() l where l.verb in ('approve', 'reject')), true);
  perform oml.require_claims(reason, idempotency_key, operation, app_version);
  if verdict is null or verdict not in ('approve', 'reject') then
    raise exception using
      errcode = 'OM213', message = format('%L is no verdict', left(verdict, 80)), hint = 'A verdict is approve or reject.';
  elsif verdict = 'reject' and coalesce(btrim(reason), '') = '' then
    raise exception using
      errcode = 'OM212', message = 'reject needs a reason', hint = 'Say what the author should change: the author reads it.';
  end if;
  if octet_length(report::text) > 32768 then
    raise exception using
      errcode = 'OM223', message = format('a report of %s bytes', octet_length(report::text)),
      hint = 'A report has at most 32768 bytes: the driver lists the first findings and counts the rest.';
  end if;
  perform oml.lock_chain(actor.tenant_id);
  if idempotency_key is not null then
    digest := sha256(convert_to(jsonb_build_array(
      actor.auth, 'verdict', artifact, verdict, reason, version, report, accept_findings, operation, app_version
    )::text, 'UTF8'));
    first := oml.first_receipt(actor.tenant_id, actor.principal, idempotency_key, digest);
    if first.seq is not null then
      return first;
    end if;
  end if;
  judged := oml.find_version(actor.tenant_id, artifact, version);
  if judged.author = actor.principal then
    raise exception using
      errcode = 'OM220', message = format('principal %L is the author of %s/%s', actor.principal, judged.artifact_id, judged.version),
      hint = 'Nobody reviews what is its own: another principal with the permission review does.';
  elsif judged.state = 'held' and exists (
    select from generate_series(0, judged.attachments) p
    where not exists (
      select from oml.served s
      where s.tenant_id = judged.tenant_id and s.artifact_id = judged.artifact_id and s.version = judged.version
        and s.part = p and s.principal = actor.principal
    )
  ) then
    raise exception using
      errcode = 'OM221', message = format('%s/%s was not served to principal %L in full', judged.artifact_id, judged.version, actor.principal),
      hint = 'Read it first, body and attachments: select * from oml_review_serve(…). Each version is served anew.';
  end if;
  parts := oml.reviewed_parts(report, judged);
  if verdict = 'approve' and accept_findings is not true and jsonb_path_exists(parts, '$[*].findings[*]') then
    raise exception using
      errcode = 'OM222', message = format('the scan of %s/%s found something', judged.artifact_id, judged.version),
      hint = 'Look at the findings. Reject it, or approve it all the same with accept_findings => true and a reason.';
  elsif verdict = 'approve' and coalesce(btrim(reason), '') = '' and jsonb_path_exists(parts, '$[*].findings[*]') then
    raise exception using
      errcode = 'OM212', message = 'approve in spite of findings needs a reason', hint = 'Say why they are no reason to reject it: it is signed into the event.';
  end if;
  return oml.transit(
    actor.tenant_id, actor.principal, actor.auth, verdict, judged, reason,
    jsonb_build_object('verdict', verdict, 'review', parts, 'findings_accepted', accept_findings is true),
    idempotency_key, digest, operation, app_version
  );
end
$$;
comment on function @extschema@.oml_verdict(uuid, text, text, bigint, text, jsonb, boolean, text, text, text)
  is 'Approve or reject a version (the newest if none is named), after it was served in full to this reviewer. Needs review on the tenant, and not to be its author.';
