-- Journals a submission and keeps its ciphertext: the last step of oml_submit and oml_submit_sealed, under
-- the chain's lock. One without attachments is one event, which is stored as oml_append stores one. Its state
-- is inserted here, where its parts are at hand; oml_fold_check has it from the journal.
create function oml.store_submission(tenant_id uuid, principal text, auth text, given oml.submission)
returns oml.submission_receipt
language plpgsql
volatile
-- search_path: pinned by its callers
as $$
#variable_conflict use_variable
declare
  chain record;
  place record;
  first oml.receipt;
  kid bytea;
  said jsonb;
  sealed oml.sealed;
  occurred_at timestamptz;
  items oml.batch_item[];
  stored bigint;
begin
  chain := oml.open_chain(tenant_id, false);
  if given.idempotency_key is not null or chain.may_be_stale then
    if given.idempotency_key is not null then
      first := oml.first_receipt(tenant_id, principal, given.idempotency_key, given.request_digest);
      if first.seq is not null then
        return oml.submission_receipt_of(first);
      end if;
    end if;
    if chain.may_be_stale then
      perform oml.require_fresh(tenant_id, chain.seq + 1);
    end if;
  end if;
  place := oml.find_workarea(tenant_id, given.workarea, principal);
  if given.version > 1 or given.sealed_by = 'client' then
    perform oml.require_next(tenant_id, principal, given);
  end if;

  said := jsonb_build_object(
    'workarea_id', place.workarea_id, 'path', place.path, 'provenance', given.provenance, 'media_type', given.media_types[1],
    'bytes', given.bytes[1], 'attachments', '[]'::jsonb, 'derived_from', '[]'::jsonb,
    'dek_id', given.dek_id, 'kek_epoch', given.kek_epoch, 'sealed_by', given.sealed_by, 'to', 'held'
  );
  if given.derived_from <> '{}' then
    perform oml.require_sources(tenant_id, principal, given.provenance, given.derived_from);
    said := said || jsonb_build_object('derived_from', (
      select jsonb_agg(jsonb_build_object('artifact_id', split_part(d, '/', 1)::uuid, 'version', split_part(d, '/', 2)::bigint))
      from (select distinct lower(s) from unnest(given.derived_from) s) u (d)
    ));
  end if;
  if given.writer_envelope is not null then
    kid := oml.require_writer(tenant_id, principal, given);
    said := said || jsonb_build_object('writer_kid', encode(kid, 'hex'), 'writer_envelope_digest', encode(sha256(given.writer_envelope), 'hex'));
  end if;

  if cardinality(given.bytes) = 1 then
    sealed := oml.seal_artifact(
      chain.signer, chain.kid, uuid_send(chain.deployment_id), uuid_send(tenant_id), chain.seq + 1, chain.hash,
      'submission.submit', 1, said::text, session_user::text, principal, auth, null, given.operation,
      given.app_version, uuid_send(given.caused_by), given.invocation_id, null, null, given.subject_id, 'none', chain.synchronous_commit,
      uuid_send(given.artifact_id), given.version, given.plaintext_digests[1], given.ciphertext_digests[1]
    );
    if sealed.refusal is not null then
      perform oml.refuse_signing(sealed.refusal);
    end if;
    occurred_at := timestamptz 'epoch' + sealed.occurred_us * interval '1 microsecond';
    insert into oml.journal (
      tenant_id, seq, event_id, occurred_at, type, schema_version, prev_hash, hash, kid, writer, principal, "authorization",
      operation, app_version, caused_by, invocation_id, subject_id, pii_class, synchronous_commit, payload, envelope,
      idempotency_key, request_digest, artifact_id, artifact_version, plaintext_digest, ciphertext_digest
    ) values (
      tenant_id, chain.seq + 1, sealed.event_id, occurred_at, 'submission.submit', 1, chain.hash, sealed.hash, chain.kid, session_user::text, principal, auth,
      given.operation, given.app_version, given.caused_by, given.invocation_id, given.subject_id, 'none', chain.synchronous_commit, said, sealed.envelope,
      given.idempotency_key, given.request_digest, given.artifact_id, given.version, given.plaintext_digests[1], given.ciphertext_digests[1]
    );
    if not found then
      perform oml.refuse_unstored();
    end if;
    insert into oml.outbox (seq, tenant_id, chain_seq, target)
    values (nextval('oml.outbox_seq'), tenant_id, chain.seq + 1, 'bronze.events');
    if not found then
      perform oml.refuse_unstored();
    end if;
    insert into oml.artifact_event (tenant_id, artifact_id, seq) values (tenant_id, given.artifact_id, chain.seq + 1);
    if not found then
      perform oml.refuse_unstored();
    end if;
    insert into oml.body (tenant_id, artifact_id, version, part, ciphertext)
    values (tenant_id, given.artifact_id, given.version, 0, given.ciphertexts[1]);
    if not found then
      perform oml.refuse_unstored();
    end if;
    first := (tenant_id, chain.seq + 1, sealed.event_id, sealed.hash)::oml.receipt;
  else
    -- The claim and its files are one signed unit.
    said := said || jsonb_build_object('attachments', (
      select jsonb_agg(jsonb_build_object('plaintext_digest', encode(a.known_as, 'hex'), 'ciphertext_digest', encode(a.sealed_as, 'hex')) order by a.n)
      from unnest(given.plaintext_digests, given.ciphertext_digests) with ordinality a (known_as, sealed_as, n)
      where a.n > 1
    ));
    items := array[oml.admission_item(
      'submission.submit', said, given.artifact_id, given.version, given.plaintext_digests[1], given.ciphertext_digests[1], 1,
      given.operation, given.app_version, given.caused_by, given.invocation_id, given.subject_id,
      given.idempotency_key, given.request_digest
    )];
    for part in 2 .. cardinality(given.bytes) loop
      items := items || oml.admission_item(
        'submission.attach',
        jsonb_build_object('part', part - 1, 'name', given.names[part], 'media_type', given.media_types[part], 'bytes', given.bytes[part]),
        given.artifact_id, given.version, given.plaintext_digests[part], given.ciphertext_digests[part], part,
        given.operation, given.app_version, given.caused_by, given.invocation_id, given.subject_id
      );
    end loop;
    first := oml.append_admission(tenant_id, principal, auth, items);
    select j.occurred_at into occurred_at from oml.journal j where j.tenant_id = first.tenant_id and j.seq = first.seq;
    insert into oml.attachment (
      tenant_id, artifact_id, version, part, name, media_type, bytes, plaintext_digest, ciphertext_digest, attached_seq
    )
    select tenant_id, given.artifact_id, given.version, p.n - 1, p.name, p.media_type, p.bytes, p.plaintext_digest, p.ciphertext_digest, first.seq + p.n - 1
    from unnest(given.names, given.media_types, given.bytes, given.plaintext_digests, given.ciphertext_digests)
      with ordinality p (name, media_type, bytes, plaintext_digest, ciphertext_digest, n)
    where p.n > 1;
    get diagnostics stored = row_count;
    if stored <> cardinality(given.bytes) - 1 then
      perform oml.refuse_unstored();
    end if;
    insert into oml.artifact_event (tenant_id, artifact_id, seq)
    select tenant_id, given.artifact_id, first.seq + n - 1 from generate_series(1, cardinality(given.bytes)) n;
    get diagnostics stored = row_count;
    if stored <> cardinality(given.bytes) then
      perform oml.refuse_unstored();
    end if;
    for part in 1 .. cardinality(given.ciphertexts) loop
      insert into oml.body (tenant_id, artifact_id, version, part, ciphertext)
      values (tenant_id, given.artifact_id, given.version, part - 1, given.ciphertexts[part]);
      if not found then
        perform oml.refuse_unstored();
      end if;
    end loop;
  end if;
  insert into oml.artifact_version (
    tenant_id, artifact_id, version, workarea_id, path, author, provenance, media_type, bytes, attachments,
    plaintext_digest, ciphertext_digest, dek_id, submitted_seq, submitted_at, state, state_seq
  ) values (
    tenant_id, given.artifact_id, given.version, place.workarea_id, place.path, principal, given.provenance, given.media_types[1], given.bytes[1],
    cardinality(given.bytes) - 1, given.plaintext_digests[1], given.ciphertext_digests[1], given.dek_id, first.seq, occurred_at, 'held', first.seq
  );
  if not found then
    perform oml.refuse_unstored();
  end if;
  insert into oml.dek (tenant_id, dek_id, artifact_id, version, kek_epoch, wrapped)
  values (tenant_id, given.dek_id, given.artifact_id, given.version, given.kek_epoch, given.wrapped);
  if not found then
    perform oml.refuse_unstored();
  end if;
  if given.derived_from <> '{}' then
    insert into oml.derived_from (tenant_id, artifact_id, version, source_artifact_id, source_version)
    select tenant_id, given.artifact_id, given.version, (s ->> 'artifact_id')::uuid, (s ->> 'version')::bigint
    from jsonb_array_elements(said -> 'derived_from') s;
    get diagnostics stored = row_count;
    if stored <> jsonb_array_length(said -> 'derived_from') then
      perform oml.refuse_unstored();
    end if;
  end if;
  if given.writer_envelope is not null then
    insert into oml.writer_envelope (tenant_id, artifact_id, version, envelope)
    values (tenant_id, given.artifact_id, given.version, given.writer_envelope);
    if not found then
      perform oml.refuse_unstored();
    end if;
  end if;
  return (
    first.tenant_id, given.artifact_id, given.version, first.seq, first.event_id, first.hash,
    given.plaintext_digests[1], given.ciphertext_digests[1]
  )::oml.submission_receipt;
end
$$;
