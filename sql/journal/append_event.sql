-- Every write ends here. Invariant: per tenant, seqs are 1..n and each row links to the one before.
--   1. Lock the chain's row, to commit: so commit order is seq order.
--   2. Only then, in new statements and so with new snapshots, look for the key and read the head.
--   3. Seal. 4. Insert; the outbox row follows by trigger.
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
  head record;
  sealed oml.sealed;
  json_text text := payload::text;
begin
  if current_setting('transaction_read_only')::bool then
    perform oml.refuse_read_only();
  end if;
  perform set_config('oml.tenant_id', append_event.tenant_id::text, true);

  -- The row is read as it is once it is locked, also after waiting for a rotation that changed it.
  select h.kid into chain
  from oml.chain_head h
  where h.tenant_id = append_event.tenant_id
  for update of h;
  if not found then
    raise exception using
      errcode = 'OM040',
      message = format('the chain of tenant %s has no chain_head row', append_event.tenant_id),
      hint = 'It was removed behind OML''s back, or a restore was partial. Restore it before anything is appended.';
  end if;
  if idempotency_key is not null then
    select j.tenant_id, j.seq, j.event_id, j.hash, j.request_digest into head
    from oml.journal j
    where j.tenant_id = append_event.tenant_id
      and j.principal = append_event.principal
      and j.idempotency_key = append_event.idempotency_key;
    if found then
      if head.request_digest is distinct from append_event.request_digest then
        raise exception using
          errcode = 'OM014',
          message = format('idempotency key %L was used for another request (seq %s)', append_event.idempotency_key, head.seq),
          hint = 'A key stands for one request. Retry with the same content, or take a new key.';
      end if;
      return (head.tenant_id, head.seq, head.event_id, head.hash)::oml.receipt;
    end if;
  end if;

  select last.seq, last.hash,
    (select s.value from oml.setting s where s.name = 'signer') as signer,
    (select s.value from oml.setting s where s.name = 'deployment_id')::uuid as deployment_id
  into head
  from (values (1)) one
  left join lateral (
    select j.seq, j.hash
    from oml.journal j
    where j.tenant_id = append_event.tenant_id
    order by j.seq desc
    limit 1
  ) last on true;
  if head.signer is null or head.deployment_id is null then
    raise exception using
      errcode = 'OM042',
      message = 'the deployment''s settings lack its signer or id',
      hint = 'Rows of oml.setting were removed behind OML''s back. Restore them before anything is appended.';
  end if;
  if head.seq is null and type not in ('key.issued', 'tenant.genesis') then
    raise exception using
      errcode = 'OM041',
      message = format('the chain of tenant %s is empty: its genesis event is gone', append_event.tenant_id),
      hint = 'Events were removed from the journal. Run oml verify, and restore from a backup.';
  end if;

  sealed := oml.seal(
    head.signer, chain.kid, uuid_send(head.deployment_id), uuid_send(append_event.tenant_id),
    coalesce(head.seq, 0) + 1, coalesce(head.hash, decode(repeat('00', 32), 'hex')),
    type, schema_version, json_text, session_user::text, principal, auth, impersonation, operation,
    app_version, uuid_send(caused_by), invocation_id, entity_type, entity_id, subject_id, pii_class,
    uuid_send(artifact_id), artifact_version, plaintext_digest, ciphertext_digest, uuid_send(dek_id)
  );

  if sealed.refusal is not null then
    perform oml.refuse_signing(sealed.refusal);
  end if;

  insert into oml.journal (
    tenant_id, seq, event_id, occurred_at, type, schema_version, prev_hash, hash, kid, writer,
    principal, "authorization", impersonation, operation, app_version, caused_by, invocation_id,
    entity_type, entity_id, subject_id, pii_class, artifact_id, artifact_version, plaintext_digest,
    ciphertext_digest, dek_id, payload, envelope, idempotency_key, request_digest
  ) values (
    append_event.tenant_id, coalesce(head.seq, 0) + 1, sealed.event_id,
    timestamptz 'epoch' + sealed.occurred_us * interval '1 microsecond',
    append_event.type, append_event.schema_version,
    coalesce(head.hash, decode(repeat('00', 32), 'hex')), sealed.hash, sealed.kid,
    session_user::text, append_event.principal, auth, append_event.impersonation,
    append_event.operation, append_event.app_version, append_event.caused_by,
    append_event.invocation_id, append_event.entity_type, append_event.entity_id,
    append_event.subject_id, append_event.pii_class, append_event.artifact_id,
    append_event.artifact_version, append_event.plaintext_digest, append_event.ciphertext_digest,
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
  return (append_event.tenant_id, coalesce(head.seq, 0) + 1, sealed.event_id, sealed.hash)::oml.receipt;
end
$$;
