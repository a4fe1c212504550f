-- The one way a version changes its state: as oml.lifecycle() allows, with an event that says from where to
-- where. details go into the event beside that. The chain is locked, and so the state is looked at in turn.
create function oml.transit(
  tenant_id uuid, principal text, auth text, verb text, artifact oml.version_row, reason text, details jsonb,
  idempotency_key text, request_digest bytea, operation text, app_version text
)
returns oml.receipt
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  step record;
begin
  select l.* into step
  from oml.lifecycle() l
  where l.verb = transit.verb and l.from_state = artifact.state
    and (not l.simulated_only or artifact.provenance = 'simulated');
  if not found then
    perform oml.refuse_transition(verb, artifact);
  end if;
  return oml.append_admission(tenant_id, principal, auth, array[oml.admission_item(
    step.event_type,
    jsonb_strip_nulls(jsonb_build_object('verb', verb, 'from', step.from_state, 'to', step.to_state, 'reason', reason)) || details,
    artifact.artifact_id, artifact.version, artifact.plaintext_digest, artifact.ciphertext_digest,
    idempotency_key => transit.idempotency_key, request_digest => transit.request_digest,
    operation => transit.operation, app_version => transit.app_version
  )]);
end
$$;
