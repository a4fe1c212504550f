-- Appends events of one chain, in the steps of oml_append from the lock on. A request that was answered before
-- gets its first receipt, and one that stands twice in the batch is appended once.
create function oml.append_events(
  tenant_id uuid,
  principal text,
  auth text,
  impersonation text,
  items oml.batch_item[],
  is_first boolean default false
)
returns setof oml.batch_receipt
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  chain record;
  request record;
  given record;
  sealed oml.sealed_batch;
  inserted bigint;
  fresh oml.batch_item[] := items;
  answered oml.batch_item[] := '{}';
begin
  chain := oml.open_chain(append_events.tenant_id, append_events.is_first);

  if exists (select from unnest(items) i where i.idempotency_key is not null) then
    with requested as (
      select i as item, i.n, i.idempotency_key, i.request_digest, j.seq,
        row_number() over same_key as nth,
        case when j.seq is null then first_value(i.request_digest) over same_key else j.request_digest end as first_digest
      from unnest(items) i
      left join oml.journal j
        on j.tenant_id = append_events.tenant_id
        and j.principal = append_events.principal
        and j.idempotency_key = i.idempotency_key
      window same_key as (partition by i.idempotency_key order by i.n)
    )
    select
      array_agg(r.item order by r.n) filter (where r.idempotency_key is null or (r.nth = 1 and r.seq is null)) as fresh,
      array_agg(r.item order by r.n) filter (where r.idempotency_key is not null and (r.nth > 1 or r.seq is not null)) as answered,
      min(r.n) filter (where r.idempotency_key is not null and r.request_digest is distinct from r.first_digest) as n
    into request
    from requested r;
    if request.n is not null then
      raise exception using
        errcode = 'OM014',
        message = format('event %s of the batch: idempotency key %L was used for another request', request.n,
          (select i.idempotency_key from unnest(items) i where i.n = request.n)),
        hint = 'A key stands for one request. Retry with the same content, or take a new key.';
    end if;
    fresh := coalesce(request.fresh, '{}');
    answered := coalesce(request.answered, '{}');
  end if;

  if cardinality(fresh) > 0 then
    if chain.may_be_stale then
      perform oml.require_fresh(append_events.tenant_id, chain.seq + 1);
    end if;
    select
      array_agg(i.type order by i.n) as types, array_agg(i.schema_version order by i.n) as schema_versions,
      array_agg(i.payload::text order by i.n) as payloads, array_agg(i.pii_class order by i.n) as pii_classes,
      array_agg(i.operation order by i.n) as operations, array_agg(i.app_version order by i.n) as app_versions,
      array_agg(uuid_send(i.caused_by) order by i.n) as caused_bys, array_agg(i.invocation_id order by i.n) as invocation_ids,
      array_agg(i.entity_type order by i.n) as entity_types, array_agg(i.entity_id order by i.n) as entity_ids,
      array_agg(i.subject_id order by i.n) as subject_ids, array_agg(uuid_send(i.artifact_id) order by i.n) as artifact_ids,
      array_agg(i.artifact_version order by i.n) as artifact_versions, array_agg(i.plaintext_digest order by i.n) as plaintext_digests,
      array_agg(i.ciphertext_digest order by i.n) as ciphertext_digests
    into given
    from unnest(fresh) i;
    sealed := oml.seal_batch(
      chain.signer, chain.kid, uuid_send(chain.deployment_id), uuid_send(append_events.tenant_id),
      chain.seq + 1, chain.hash, session_user::text, append_events.principal, auth, append_events.impersonation,
      chain.synchronous_commit, given.types, given.schema_versions, given.payloads, given.pii_classes, given.operations, given.app_versions,
      given.caused_bys, given.invocation_ids, given.entity_types, given.entity_ids, given.subject_ids,
      given.artifact_ids, given.artifact_versions, given.plaintext_digests, given.ciphertext_digests
    );
    if sealed.refusal is not null then
      perform oml.refuse_signing(sealed.refusal);
    end if;

    insert into oml.journal (
      tenant_id, seq, event_id, occurred_at, type, schema_version, prev_hash, hash, kid, writer,
      principal, "authorization", impersonation, operation, app_version, caused_by, invocation_id,
      entity_type, entity_id, subject_id, pii_class, synchronous_commit, payload, envelope, idempotency_key,
      request_digest, artifact_id, artifact_version, plaintext_digest, ciphertext_digest
    )
    select
      append_events.tenant_id, chain.seq + s.nth, s.event_id, timestamptz 'epoch' + s.occurred_us * interval '1 microsecond',
      s.type, s.schema_version, s.prev_hash, s.hash, chain.kid, session_user::text,
      append_events.principal, auth, append_events.impersonation, s.operation, s.app_version, s.caused_by, s.invocation_id,
      s.entity_type, s.entity_id, s.subject_id, s.pii_class, chain.synchronous_commit, s.payload, s.envelope, s.idempotency_key,
      s.request_digest, s.artifact_id, s.artifact_version, s.plaintext_digest, s.ciphertext_digest
    from rows from (
      unnest(fresh), unnest(sealed.event_ids), unnest(sealed.occurred_us), unnest(sealed.hashes), unnest(sealed.envelopes),
      unnest(array_prepend(chain.hash, trim_array(sealed.hashes, 1)))
    ) with ordinality s (
      n, type, schema_version, payload, pii_class, operation, app_version, caused_by, invocation_id, entity_type,
      entity_id, subject_id, idempotency_key, request_digest, artifact_id, artifact_version, plaintext_digest, ciphertext_digest,
      event_id, occurred_us, hash, envelope, prev_hash, nth
    )
    order by s.nth;
    get diagnostics inserted = row_count;
    if inserted <> cardinality(fresh) then
      perform oml.refuse_unstored();
    end if;
    perform oml.derive_events(
      append_events.tenant_id, array(select chain.seq + n from generate_series(1, cardinality(fresh)) n)
    );
    -- Events of reviews come from there alone, and never with an application's.
    if split_part(fresh[1].type, '.', 1) in ('workarea', 'review', 'artifact') then
      perform oml.fold_admission(
        append_events.tenant_id, array(select chain.seq + n from generate_series(1, cardinality(fresh)) n)
      );
    end if;
  end if;

  return query
  select s.n, append_events.tenant_id, chain.seq + s.nth, s.event_id, s.hash
  from rows from (unnest(fresh), unnest(sealed.event_ids), unnest(sealed.hashes)) with ordinality s (
    n, type, schema_version, payload, pii_class, operation, app_version, caused_by, invocation_id, entity_type,
    entity_id, subject_id, idempotency_key, request_digest, artifact_id, artifact_version, plaintext_digest, ciphertext_digest,
    event_id, hash, nth
  )
  union all
  select i.n, j.tenant_id, j.seq, j.event_id, j.hash
  from unnest(answered) i
  join oml.journal j
    on j.tenant_id = append_events.tenant_id
    and j.principal = append_events.principal
    and j.idempotency_key = i.idempotency_key;
end
$$;
