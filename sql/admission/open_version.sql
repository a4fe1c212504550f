-- The parts of a version, decrypted and checked against the journalled digests: all, or one by its name ('' is
-- the body). The digests are the state's, which is folded from the signed events; never those of what is stored.
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
  select d.kek_epoch, d.wrapped into key from oml.dek d where d.tenant_id = artifact.tenant_id and d.dek_id = artifact.dek_id;
  select array_agg(p.part order by p.part) as parts, array_agg(p.plaintext_digest order by p.part) as digests,
    array_agg(b.ciphertext order by p.part) as ciphertexts
  into asked
  from (
    select 0 as part, '' as name, artifact.plaintext_digest as plaintext_digest
    union all
    select a.part, a.name, a.plaintext_digest
    from oml.attachment a
    where a.tenant_id = artifact.tenant_id and a.artifact_id = artifact.artifact_id and a.version = artifact.version
  ) p
  left join oml.body b on b.tenant_id = artifact.tenant_id and b.artifact_id = artifact.artifact_id
    and b.version = artifact.version and b.part = p.part
  where wanted is null or p.name = wanted;
  if asked.parts is null then
    raise exception using
      errcode = 'OM224', message = format('%s/%s has no attachment %L', artifact.artifact_id, artifact.version, wanted),
      hint = 'oml_fetch() without an attachment returns the body.';
  end if;
  opened := oml.open_parts(
    (select s.value from oml.setting s where s.name = 'signer'), uuid_send(artifact.tenant_id), uuid_send(artifact.artifact_id),
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
