-- What can be said of a submission before anything is encrypted or looked up. Part 1 of the arrays is the body.
create function oml.require_content(provenance text, media_types text[], names text[], bytes bigint[], derived_from text[])
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  most record;
  n int := cardinality(bytes);
begin
  most := oml.body_limits();
  if provenance is null or provenance not in ('observed', 'derived', 'imported', 'simulated') then
    raise exception using
      errcode = 'OM196', message = format('%L is no class of provenance', left(provenance, 80)),
      hint = 'It is observed, derived, imported or simulated.';
  elsif bytes[1] is null or bytes[1] = 0 then
    raise exception using
      errcode = 'OM193', message = 'the body is empty',
      hint = 'A submission has a body of at least one byte. An event without one is for oml_append().';
  elsif bytes[1] > most.body_bytes then
    raise exception using
      errcode = 'OM197', message = format('a body of %s bytes', bytes[1]),
      hint = format('A body has at most %s bytes.', most.body_bytes);
  elsif n - 1 > most.attachments or cardinality(media_types) is distinct from n or cardinality(names) is distinct from n then
    perform oml.refuse_attachments(n - 1, cardinality(names) - 1, cardinality(media_types) - 1);
  end if;
  for part in 2 .. n loop
    if bytes[part] is null or bytes[part] not between 1 and most.attachment_bytes then
      raise exception using
        errcode = 'OM198', message = format('attachment %s has %s bytes', part - 1, coalesce(bytes[part]::text, 'no')),
        hint = format('An attachment that rides with its submission has 1 to %s bytes.', most.attachment_bytes);
    end if;
    if names[part] is null or octet_length(convert_to(names[part], 'UTF8')) not between 1 and 255
      or names[part] ~ '[/\\[:cntrl:]\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]' or names[part] in ('.', '..') or names[part] <> btrim(names[part]) or names[part] = any (names[2:part - 1])
    then
      raise exception using
        errcode = 'OM199', message = format('%L is no name for attachment %s', left(names[part], 80), part - 1),
        hint = 'A name has 1 to 255 bytes, no slash, no control or invisible character and no space at its ends, and no other attachment of the submission has it.';
    end if;
  end loop;
  -- convert_to fails for bytes that are no UTF-8, which Python would not see: see oml_append.
  if array_position(media_types, null) is not null or convert_to(array_to_string(media_types, ' '), 'UTF8') is null then
    raise exception using
      errcode = 'OM194', message = 'a part has no media type', hint = 'Name the type that the bytes are of, or application/octet-stream.';
  end if;
  if provenance = 'derived' and coalesce(cardinality(derived_from), 0) = 0 then
    raise exception using
      errcode = 'OM201', message = 'a derived version names nothing it was made from',
      hint = 'Name the versions: derived_from => array[''ARTIFACT/VERSION''].';
  end if;
  if cardinality(derived_from) > 100 or exists (
    select from unnest(derived_from) d (source)
    where d.source is null or d.source !~* '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}/[1-9][0-9]{0,17}$'
  ) then
    raise exception using
      errcode = 'OM202', message = 'derived_from is not understood',
      hint = 'It names at most 100 versions, each as an artifact''s id, a slash and a number.';
  end if;
end
$$;
