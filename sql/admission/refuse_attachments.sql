create function oml.refuse_attachments(contents int, names int, types int)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using
    errcode = 'OM211',
    message = format('%s attachments with %s names and %s media types', coalesce(contents, 0), coalesce(names, 0), coalesce(types, 0)),
    hint = format(
      'A submission has at most %s attachments, and a name and a media type for each: three plain arrays of one dimension.',
      (select l.attachments from oml.body_limits() l)
    );
end
$$;
