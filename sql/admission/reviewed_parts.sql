-- What a review means for each part, for the event: text that was scanned; content that no extractor reads, and
-- that was scanned as it is; or nothing but provenance and digest. report is what the reviewer's client says: of
-- just these parts, by their digests, and nothing of what it found but its kind and place.
create function oml.reviewed_parts(report jsonb, judged oml.version_row)
returns jsonb
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  keys constant text[] := '{part,plaintext_digest,basis,media_type,extractor,scanner,findings}';
  readable constant text := '^(text/.*|application/(json|xml|yaml|javascript|pdf)|.*\+(json|xml|yaml))$';
  reviewed jsonb;
  faults bigint;
begin
  if report is null then
    select jsonb_agg(jsonb_build_object('part', p, 'basis', 'digest') order by p) into reviewed
    from generate_series(0, judged.attachments) p;
    return reviewed;
  end if;
  if (case when jsonb_typeof(report) = 'array' then jsonb_array_length(report) = judged.attachments + 1 and convert_to(report::text, 'UTF8') is not null end)
  then
    select count(*) into faults
    from jsonb_array_elements(report) with ordinality r (entry, n)
    left join (
      select 0 as part, judged.media_type as media_type, judged.plaintext_digest as plaintext_digest
      union all
      select a.part, a.media_type, a.plaintext_digest
      from oml.attachment a
      where a.tenant_id = judged.tenant_id and a.artifact_id = judged.artifact_id and a.version = judged.version
    ) p on p.part = r.n - 1
    where case when jsonb_typeof(r.entry) = 'object' then
      r.entry - keys <> '{}'
      or r.entry -> 'part' is distinct from to_jsonb(p.part)
      or r.entry ->> 'plaintext_digest' is distinct from encode(p.plaintext_digest, 'hex')
      or r.entry ->> 'media_type' is distinct from p.media_type
      or r.entry ->> 'basis' is distinct from case when split_part(p.media_type, ';', 1) ~ readable then 'text' else 'opaque' end
      or (r.entry ->> 'basis' = 'text') <> coalesce(r.entry ->> 'extractor' ~ '^[[:print:]]{1,200}$', false)
      or coalesce(r.entry ->> 'scanner' !~ '^[[:print:]]{1,200}$', true)
      or case when jsonb_typeof(r.entry -> 'findings') = 'array' then exists (
        select from jsonb_array_elements(r.entry -> 'findings') f
        where case when jsonb_typeof(f) = 'object' then
          coalesce(f ->> 'kind' !~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$', true)
          or f - 'kind' - 'line' - 'count' <> '{}' or (f ? 'line') = (f ? 'count')
          or coalesce(f ->> 'line', f ->> 'count') !~ '^[1-9][0-9]{0,8}$'
          or jsonb_typeof(coalesce(f -> 'line', f -> 'count')) <> 'number'
        else true end
      ) else true end
    else true end;
    if faults = 0 then
      return report;
    end if;
  end if;
  raise exception using
    errcode = 'OM223', message = format('the report is none on the parts of %s/%s', judged.artifact_id, judged.version),
    hint = 'It is an array with an object for each part, in order: part, plaintext_digest in hex, media_type, basis (text where an extractor exists, else opaque), extractor (of a text), scanner, and findings, each a kind with a line or a count. The driver makes it of what it was served.';
end
$$;
