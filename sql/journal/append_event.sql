-- Every single event is written here, and several at a time by append_events, in the same steps.
-- Invariant: per tenant, seqs are 1..n and each row links to the one before.
--   1. Lock the chain's row, to commit: so commit order is seq order.
--   2. Only then, in new statements and so with new snapshots, read the head and look for the key.
--   3. Seal. 4. Insert; outbox rows and state follow by trigger.
-- Under REPEATABLE READ the snapshot of step 2 may be older than the lock. Then the seq is taken, and
-- ON CONFLICT reports the row it cannot see as 40001.
create function oml.append_event(
  tenant_id uuid,
  type text,
  schema_version int,
  payload jsonb,
  pii_class text,
  principal text,
  auth text,
  impersonation text default null,
  operation text default null,
  app_version text default null,
  caused_by uuid default null,
  invocation_id text default null,
  entity_type text default null,
  entity_id text default null,
  subject_id text default null,
  artifact_id uuid default null,
  artifact_version bigint default null,
  plaintext_digest bytea default null,
  ciphertext_digest bytea default null,
  dek_id uuid default null,
  idempotency_key text default null,
  request_digest bytea default null
)
returns oml.receipt
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  chain record;
  first oml.receipt;
  sealed oml.sealed;
  json_text text := payload::text;
begin
  chain := oml.open_chain(append_event.tenant_id, type in ('key.issued', 'tenant.genesis'));

  if idempotency_key is not null then
    first := oml.first_receipt(
      append_event.tenant_id, append_event.principal, append_event.idempotency_key, append_event.request_digest
    );
    if first.seq is not null then
      return first;
    end if;
  end if;

  sealed := oml.seal(
    chain.signer, chain.kid, uuid_send(chain.deployment_id), uuid_send(append_event.tenant_id),
    chain.seq + 1, chain.hash,
    type, schema_version, json_text, session_user::text, principal, auth, impersonation, operation,
    app_version, uuid_send(caused_by), invocation_id, entity_type, entity_id, subject_id, pii_class,
    chain.synchronous_commit, uuid_send(artifact_id), artifact_version, plaintext_digest, ciphertext_digest, uuid_send(dek_id)
  );

  if sealed.refusal is not null then
    perform oml.refuse_signing(sealed.refusal);
  end if;

  insert into oml.journal (
    tenant_id, seq, event_id, occurred_at, type, schema_version, prev_hash, hash, kid, writer,
    principal, "authorization", impersonation, operation, app_version, caused_by, invocation_id,
    entity_type, entity_id, subject_id, pii_class, synchronous_commit, artifact_id, artifact_version,
    plaintext_digest, ciphertext_digest, dek_id, payload, envelope, idempotency_key, request_digest
  ) values (
    append_event.tenant_id, chain.seq + 1, sealed.event_id,
    timestamptz 'epoch' + sealed.occurred_us * interval '1 microsecond',
    append_event.type, append_event.schema_version,
    chain.hash, sealed.hash, sealed.kid,
    session_user::text, append_event.principal, auth, append_event.impersonation,
    append_event.operation, append_event.app_version, append_event.caused_by,
    append_event.invocation_id, append_event.entity_type, append_event.entity_id,
    append_event.subject_id, append_event.pii_class, chain.synchronous_commit,
    append_event.artifact_id, append_event.artifact_version, append_event.plaintext_digest, append_event.ciphertext_digest,
    append_event.dek_id, append_event.payload, sealed.envelope, append_event.idempotency_key,
    append_event.request_digest
  )
  on conflict on constraint journal_pkey do nothing;
  if not found then
    raise exception using
      errcode = '40001',
      message = 'could not serialize access: the chain grew after this transaction''s snapshot',
      hint = 'Run the transaction again.';
  end if;
  return (append_event.tenant_id, chain.seq + 1, sealed.event_id, sealed.hash)::oml.receipt;
end
$$;
