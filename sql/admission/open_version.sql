-- The parts of a version, decrypted and checked against the journalled digests: all, or one by its name ('' is
-- the body). The state's digests count only if the event that it was folded from has them in its signed bytes.
create function oml.open_version(artifact oml.version_row, wanted text default null)
returns table (part int, name text, media_type text, content bytea, plaintext_digest bytea, ciphertext_digest bytea)
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set work_mem = '64MB'
as $$
#variable_conflict use_column
declare
  key record;
  asked record;
  opened record;
begin
  select d.kek_epoch, d.wrapped, s.value as signer into key
  from oml.setting s
  left join oml.dek d on d.tenant_id = artifact.tenant_id and d.dek_id = artifact.dek_id
  where s.name = 'signer';
  select array_agg(p.part order by p.part) as parts, array_agg(p.plaintext_digest order by p.part) as digests,
    array_agg(b.ciphertext order by p.part) as ciphertexts,
    bool_and(coalesce(
      j.plaintext_digest = p.plaintext_digest and j.ciphertext_digest = p.ciphertext_digest
        and position(p.plaintext_digest in j.envelope) > 0 and position(p.ciphertext_digest in j.envelope) > 0, false
    )) as journalled
  into asked
  from (
    select 0 as part, '' as name, v.submitted_seq as seq, artifact.plaintext_digest as plaintext_digest, artifact.ciphertext_digest as ciphertext_digest
    from oml.artifact_version v
    where v.tenant_id = artifact.tenant_id and v.artifact_id = artifact.artifact_id and v.version = artifact.version
    union all
    select a.part, a.name, a.attached_seq, a.plaintext_digest, a.ciphertext_digest
    from oml.attachment a
    where a.tenant_id = artifact.tenant_id and a.artifact_id = artifact.artifact_id and a.version = artifact.version
  ) p
  left join oml.journal j on j.tenant_id = artifact.tenant_id and j.seq = p.seq
    and j.artifact_id = artifact.artifact_id and j.artifact_version = artifact.version
    and j.type = case p.part when 0 then 'submission.submit' else 'submission.attach' end
  left join oml.body b on b.tenant_id = artifact.tenant_id and b.artifact_id = artifact.artifact_id
    and b.version = artifact.version and b.part = p.part
  where wanted is null or p.name = wanted;
  if asked.parts is null then
    raise exception using
      errcode = 'OM224', message = format('%s/%s has no attachment %L', artifact.artifact_id, artifact.version, left(wanted, 80)),
      hint = 'oml_attachments() lists those there are; oml_fetch() without an attachment returns the body.';
  elsif not asked.journalled then
    raise exception using
      errcode = 'OM210', message = format('the digests kept of %s/%s are not those in the journal', artifact.artifact_id, artifact.version),
      hint = 'The state was changed behind OML''s back: oml_fold_check() and oml verify say where. Restore it from a backup.';
  elsif key.wrapped is null then
    raise exception using
      errcode = 'OM210', message = format('the data key of %s/%s is missing', artifact.artifact_id, artifact.version),
      hint = 'Its row was removed behind OML''s back. Restore it from a backup: without it nothing of the version can be read.';
  end if;
  opened := oml.open_parts(
    key.signer, uuid_send(artifact.tenant_id), uuid_send(artifact.artifact_id),
    artifact.version, key.kek_epoch, uuid_send(artifact.dek_id), key.wrapped, asked.parts, asked.digests, asked.ciphertexts
  );
  if opened.refusal is not null then
    perform oml.refuse_signing(opened.refusal);
  end if;
  return query
  select o.part, coalesce(a.name, ''), coalesce(a.media_type, artifact.media_type), o.content,
    coalesce(a.plaintext_digest, artifact.plaintext_digest), coalesce(a.ciphertext_digest, artifact.ciphertext_digest)
  from unnest(asked.parts, opened.contents) o (part, content)
  left join oml.attachment a on a.tenant_id = artifact.tenant_id and a.artifact_id = artifact.artifact_id
    and a.version = artifact.version and a.part = o.part
  order by o.part;
end
$$;
