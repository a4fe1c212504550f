-- What a review means for each part, for the event: text that was scanned; content that no extractor reads, and
-- that was scanned as it is; or nothing but provenance and digest. report is what the reviewer's client says.
create function oml.reviewed_parts(report jsonb, attachments int)
returns jsonb
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  keys constant text[] := '{part,basis,media_type,extractor,scanner,findings}';
begin
  if report is not null and (
    jsonb_typeof(report) <> 'array' or octet_length(convert_to(report::text, 'UTF8')) > 32768
    or exists (
      select from jsonb_array_elements(report) with ordinality r (entry, n)
      where jsonb_typeof(r.entry) <> 'object' or r.entry - keys <> '{}'
        or r.entry -> 'part' is distinct from to_jsonb(r.n - 1)
        or coalesce(r.entry ->> 'basis' not in ('text', 'opaque'), true)
        or (r.entry ->> 'basis' = 'text') <> (jsonb_typeof(r.entry -> 'extractor') is not distinct from 'string')
        or jsonb_typeof(r.entry -> 'scanner') is distinct from 'string'
        or jsonb_typeof(r.entry -> 'findings') is distinct from 'array'
    )
    or jsonb_array_length(report) <> attachments + 1
  ) then
    raise exception using
      errcode = 'OM223', message = 'the report of a review is not understood',
      hint = 'It is an array with an object for each part, in order: part, basis (text or opaque), media_type, extractor (of a text), scanner, findings; at most 32768 bytes. The driver makes it.';
  end if;
  return coalesce(report, (
    select jsonb_agg(jsonb_build_object('part', p, 'basis', 'digest') order by p) from generate_series(0, attachments) p
  ));
end
$$;
