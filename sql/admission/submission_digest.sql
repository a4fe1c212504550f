-- The digest of a submission as a request: the same for a retry, which is encrypted anew. So no key, no
-- ciphertext, and no number that a first try gets: artifact is what the caller named, null for a new one.
-- sealed_by and signed_by, the kid of a writer's key, are part of what was asked for.
create function oml.submission_digest(
  auth text, workarea text, artifact uuid, provenance text, media_types text[], names text[], plaintext_digests bytea[],
  derived_from text[], operation text, app_version text, caused_by uuid, invocation_id text, subject_id text,
  sealed_by text default 'server', signed_by bytea default null
)
returns bytea
language sql
immutable
set search_path = pg_catalog, pg_temp
as $$
  select sha256(convert_to(jsonb_build_array(
    'submit', auth, workarea, artifact, provenance, media_types, names,
    (select jsonb_agg(encode(d, 'hex') order by n) from unnest(plaintext_digests) with ordinality p (d, n)),
    derived_from, operation, app_version, caused_by, invocation_id, subject_id, sealed_by, encode(signed_by, 'hex')
  )::text, 'UTF8'))
$$;
