-- Journals a submission and keeps its ciphertext: the last step of oml_submit and oml_submit_sealed, under
-- the chain's lock. What was encrypted for a version that another submission took meanwhile is not stored.
create function oml.store_submission(tenant_id uuid, principal text, auth text, given oml.submission)
returns oml.submission_receipt
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  place record;
  first oml.receipt;
  was text;
  kid bytea;
  items oml.batch_item[];
begin
  perform oml.lock_chain(store_submission.tenant_id);
  if given.idempotency_key is not null then
    first := oml.first_receipt(store_submission.tenant_id, store_submission.principal, given.idempotency_key, given.request_digest);
    if first.seq is not null then
      return oml.submission_receipt_of(first);
    end if;
  end if;
  place := oml.find_workarea(store_submission.tenant_id, given.workarea, store_submission.principal);
  if oml.next_version(store_submission.tenant_id, given.artifact_id, store_submission.principal) <> given.version then
    raise exception using
      errcode = '40001',
      message = format('version %s of artifact %s was submitted meanwhile', given.version, given.artifact_id),
      hint = 'Run the transaction again: it becomes the version after it.';
  end if;
  if given.version > 1 then
    select v.provenance into was
    from oml.artifact_version v
    where v.tenant_id = store_submission.tenant_id and v.artifact_id = given.artifact_id and v.version = given.version - 1;
    if was = 'simulated' and given.provenance <> 'simulated' then
      raise exception using
        errcode = 'OM205', message = format('%s/%s is simulated, and its next version cannot be %s', given.artifact_id, given.version - 1, given.provenance),
        hint = 'Submit it as simulated. Simulation cannot be taken off again.';
    end if;
  end if;
  if given.derived_from <> '{}' then
    perform oml.require_sources(store_submission.tenant_id, store_submission.principal, given.provenance, given.derived_from);
  end if;
  if given.writer_envelope is not null then
    kid := oml.require_writer(store_submission.tenant_id, store_submission.principal, given);
  end if;

  items := array[oml.admission_item(
    'submission.submit',
    jsonb_strip_nulls(jsonb_build_object(
      'workarea_id', place.workarea_id, 'path', place.path, 'provenance', given.provenance, 'media_type', given.media_types[1],
      'bytes', given.bytes[1],
      -- The claim and its files are one signed unit.
      'attachments', coalesce((
        select jsonb_agg(jsonb_build_object('plaintext_digest', encode(a.known_as, 'hex'), 'ciphertext_digest', encode(a.sealed_as, 'hex')) order by a.n)
        from unnest(given.plaintext_digests, given.ciphertext_digests) with ordinality a (known_as, sealed_as, n)
        where a.n > 1
      ), '[]'),
      'derived_from', coalesce((
        select jsonb_agg(jsonb_build_object('artifact_id', split_part(d, '/', 1)::uuid, 'version', split_part(d, '/', 2)::bigint))
        from (select distinct lower(s) from unnest(given.derived_from) s) u (d)
      ), '[]'),
      'dek_id', given.dek_id, 'kek_epoch', given.kek_epoch, 'sealed_by', given.sealed_by,
      'writer_kid', encode(kid, 'hex'), 'writer_envelope_digest', encode(sha256(given.writer_envelope), 'hex'), 'to', 'held'
    )),
    given.artifact_id, given.version, given.plaintext_digests[1], given.ciphertext_digests[1], 1,
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
  first := oml.append_admission(store_submission.tenant_id, store_submission.principal, auth, items);
  insert into oml.dek (tenant_id, dek_id, artifact_id, version, kek_epoch, wrapped)
  values (store_submission.tenant_id, given.dek_id, given.artifact_id, given.version, given.kek_epoch, given.wrapped);
  insert into oml.body (tenant_id, artifact_id, version, part, ciphertext)
  select store_submission.tenant_id, given.artifact_id, given.version, c.n - 1, c.ciphertext
  from unnest(given.ciphertexts) with ordinality c (ciphertext, n);
  if given.writer_envelope is not null then
    insert into oml.writer_envelope (tenant_id, artifact_id, version, envelope)
    values (store_submission.tenant_id, given.artifact_id, given.version, given.writer_envelope);
  end if;
  return (
    first.tenant_id, given.artifact_id, given.version, first.seq, first.event_id, first.hash,
    given.plaintext_digests[1], given.ciphertext_digests[1]
  )::oml.submission_receipt;
end
$$;
