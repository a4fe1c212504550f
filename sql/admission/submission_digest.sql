-- The digest of a submission as a request: the same for a retry, which is encrypted anew.
create function oml.submission_digest(
  auth text, workarea text, artifact uuid, provenance text, media_types text[], names text[], plaintext_digests bytea[],
  derived_from text[], operation text, app_version text, caused_by uuid, invocation_id text, subject_id text
)
returns bytea
language sql
immutable
set search_path = pg_catalog, pg_temp
as $$
  select sha256(convert_to(jsonb_build_array(
    'submit', auth, workarea, artifact, provenance, media_types, names,
    (select jsonb_agg(encode(d, 'hex') order by n) from unnest(plaintext_digests) with ordinality p (d, n)),
    derived_from, operation, app_version, caused_by, invocation_id, subject_id
  )::text, 'UTF8'))
$$;
