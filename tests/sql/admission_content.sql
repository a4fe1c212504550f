-- Whether bytes are what they are said to be, and how many there may be.
begin;
\ir shared/refused.sql
\ir shared/submissions.sql
select * from no_plan();

create temporary table content (kind text, bytes bytea);
insert into content values
  ('text', convert_to('Zoë reads.', 'UTF8')), ('json', convert_to('{"a": [1, "ä"]}', 'UTF8')), ('latin', '\x5a6feb'),
  ('png', '\x89504e470d0a1a0a0000000d4948445200000001000000010806000000'), ('pdf', convert_to(E'%PDF-1.4\n1 0 obj\n', 'UTF8')),
  ('zip', '\x504b03040a0000000000000000000000000000000000000000000000'), ('gif', 'GIF89a\001\000\001\000'), ('nul', 'a\000b'),
  ('utf-16', '\xfffe5a00'), ('bell', 'a\007'), ('noise', '\xdeadbeef00ff'), ('broken json', '{"a": '), ('html', '<!doctype html><p>a'),
  ('tab', E'a\tb\r\n\fc');
create function pg_temp.submitted_as(kind text, media_type text) returns text language sql security definer as $$
  select format('select artifact_id from oml_submit(%L, %L::bytea, %L, %L)', 'research/2026', bytes, media_type, 'imported') from content c where c.kind = $1
$$;

select is(pg_temp.outcome('ann', pg_temp.submitted_as(kind, media_type)), null, format('%s is taken as %s', kind, media_type))
from (values
  ('text', 'text/plain'), ('text', 'text/plain; charset=utf-8'), ('text', 'text/plain;charset=UTF-8'), ('text', 'text/markdown'), ('tab', 'text/plain'),
  ('json', 'application/json'), ('json', 'application/ld+json'), ('json', 'text/plain'), ('html', 'text/html'),
  ('latin', 'text/plain; charset=iso-8859-1'), ('utf-16', 'text/plain; charset=utf-16'),
  ('png', 'image/png'), ('pdf', 'application/pdf'), ('zip', 'application/zip'), ('gif', 'image/gif'),
  ('png', 'application/octet-stream'), ('text', 'application/octet-stream'), ('noise', 'application/octet-stream'), ('noise', 'application/x-own')
) v (kind, media_type);
select pg_temp.refused_to(
  'ann', pg_temp.submitted_as(kind, media_type), 'OM195', format('the body is not of type %s: %s', media_type, why),
  'Name the type that the bytes are of, or application/octet-stream.', format('%s is refused as %s', kind, media_type)
)
from (values
  ('text', 'image/png', 'it does not begin as image/png does'), ('text', 'application/pdf', 'it does not begin as application/pdf does'),
  ('text', 'application/zip', 'it does not begin as application/zip does'), ('gif', 'image/png', 'it begins as image/gif does'),
  ('png', 'image/gif', 'it begins as image/png does'), ('png', 'application/pdf', 'it begins as image/png does'),
  ('zip', 'image/png', 'it begins as application/zip does'), ('pdf', 'application/zip', 'it begins as application/pdf does'),
  ('pdf', 'text/plain', 'it begins as application/pdf does'), ('png', 'text/plain', 'byte 0 does not decode as utf-8'),
  ('png', 'text/plain; charset=iso-8859-1', 'it holds the control character U+001A'),
  ('zip', 'text/plain', 'it holds the control character U+0003'), ('nul', 'text/plain', 'it holds the control character U+0000'),
  ('nul', 'text/markdown', 'it holds the control character U+0000'), ('bell', 'text/html', 'it holds the control character U+0007'),
  ('latin', 'text/plain', 'byte 2 does not decode as utf-8'), ('text', 'text/plain; charset=us-ascii', 'byte 2 does not decode as ascii'),
  ('utf-16', 'text/plain', 'byte 0 does not decode as utf-8'), ('noise', 'application/json', 'byte 2 does not decode as utf-8'),
  ('text', 'application/json', 'it is no JSON in line 1'), ('broken json', 'application/json', 'it is no JSON in line 1'),
  ('broken json', 'application/ld+json', 'it is no JSON in line 1')
) v (kind, media_type, why);

-- The refusal repeats nothing of the content.
select unalike((pg_temp.refusal_of(format('select pg_temp.as_login(%L, %L)', 'ann', pg_temp.submitted_as('text', 'application/json'))))::text, '%reads%', 'no content is in the refusal');

-- Sizes, at the limit and one above.
create function pg_temp.of_size(body bigint, attachment bigint default null) returns text language sql as $$
  select format(
    $q$ select artifact_id from oml_submit('research/2026', convert_to(repeat('x', %s), 'UTF8'), 'text/plain', 'observed' %s) $q$, body,
    case when attachment is not null then format(
      $q$ , attachment_names => '{a}', attachment_types => '{text/plain}', attachments => array[convert_to(repeat('x', %s), 'UTF8')] $q$, attachment
    ) end
  )
$$;
select pg_temp.refused_to('ann', pg_temp.of_size(body_bytes + 1), 'OM197', 'a body of 8388609 bytes', 'A body has at most 8388608 bytes.', 'a byte too many is refused') from oml.body_limits();
select pg_temp.refused_to('ann', pg_temp.of_size(1, attachment_bytes + 1), 'OM198', 'attachment 1 has 1048577 bytes', '%1 to 1048576 bytes.', 'and in an attachment') from oml.body_limits();
select pg_temp.as_login('ann', pg_temp.of_size(body_bytes, attachment_bytes)) as big from oml.body_limits() \gset
select results_eq(
  format('select part, octet_length(ciphertext) from oml.body where artifact_id = %L order by part', :'big'),
  'values (0, 8388608 + 41), (1, 1048576 + 41)', 'what is as large as it may be is taken'
);
select pg_temp.as_login('ann', format('select sha256(content) = sha256(convert_to(repeat(%L, 8388608), %L)) from oml_fetch(%L)', 'x', 'UTF8', :'big')) as whole \gset
select ok(:'whole', 'and comes back whole');
select is(pg_temp.as_login('rita', format('select sum(octet_length(content)) from oml_review_serve(%L)', :'big')), (8388608 + 1048576)::text, 'and is served whole');
select * from finish();
rollback;
