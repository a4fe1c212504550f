-- Submissions that are refused: each with its own SQLSTATE, and nothing is stored.
begin;
\ir shared/refused.sql
\ir shared/submissions.sql
select * from no_plan();

select pg_temp.as_login('carl', $$ select artifact_id from oml_submit('archive', 'carl''s', 'text/plain', 'observed') $$) as carls \gset
select pg_temp.submitted('ben') as bens \gset
select pg_temp.submitted('ann', 'simulated') as simulated \gset
select pg_temp.submitted('ann') as anns \gset
select gen_random_uuid() as unknown \gset

create temporary table given (name text, value text);
insert into given values
  ('workarea', '''research/2026'''), ('body', '''A note.''::bytea'), ('media_type', '''text/plain'''), ('provenance', '''observed''');

-- A submission of the usual arguments, but for those given here.
create function pg_temp.submission(variadic other text[] default '{}')
returns text
language sql
as $$
  select 'select artifact_id from oml_submit(' || string_agg(format('%I => %s', coalesce(g.name, o.name), coalesce(o.value, g.value)), ', ') || ')'
  from given g
  full join (select other[n] as name, other[n + 1] as value from generate_series(1, cardinality(other), 2) n) o on o.name = g.name
$$;
grant select on given to public;
select is(pg_temp.outcome('ann', pg_temp.submission()), null, 'the usual one is taken');

create temporary table refused_case (what text, statement text, sqlstate text, message text, hint text);
insert into refused_case values
  ('an empty body', pg_temp.submission('body', ''''''), 'OM193', 'the body is empty', '%at least one byte%'),
  ('no body', pg_temp.submission('body', 'null'), 'OM193', 'the body is empty', '%at least one byte%'),
  ('no media type', pg_temp.submission('media_type', 'null'), 'OM194', 'a part has no media type', '%application/octet-stream%'),
  ('an unknown provenance', pg_temp.submission('provenance', '''guessed'''), 'OM196', '''guessed'' is no class of provenance', 'It is observed, derived, imported or simulated.'),
  ('a provenance in capitals', pg_temp.submission('provenance', '''Observed'''), 'OM196', '''Observed'' is no class of provenance', '%'),
  ('no provenance', pg_temp.submission('provenance', 'null'), 'OM196', 'NULL is no class of provenance', '%'),
  ('an unknown workarea', pg_temp.submission('workarea', '''nowhere'''), 'OM190', 'there is no workarea ''nowhere'' that principal ''ann'' is a member of', '%oml_create_workarea()%'),
  ('no workarea', pg_temp.submission('workarea', 'null'), 'OM190', 'there is no workarea NULL that principal ''ann'' is a member of', '%'),
  ('a workarea of others', pg_temp.submission('workarea', '''archive'''), 'OM190', 'there is no workarea ''archive'' that principal ''ann'' is a member of', '%oml_add_member()%'),
  ('a workarea''s path in other case', pg_temp.submission('workarea', '''Research/2026'''), 'OM190', 'there is no workarea ''Research/2026'' that principal ''ann'' is a member of', '%'),
  ('an artifact that is not there', pg_temp.submission('artifact', quote_literal(:'unknown')), 'OM203', format('there is no artifact %s that the caller may act on', :'unknown'), '%Only its author%'),
  ('a next version of another''s', pg_temp.submission('artifact', quote_literal(:'bens')), 'OM203', format('there is no artifact %s that the caller may act on', :'bens'), '%Only its author%'),
  ('derived from nothing', pg_temp.submission('provenance', '''derived'''), 'OM201', 'a derived version names nothing it was made from', '%derived_from =>%'),
  ('derived from null', pg_temp.submission('provenance', '''derived''', 'derived_from', 'null'), 'OM201', 'a derived version names nothing it was made from', '%'),
  ('a tenant of others', pg_temp.submission('tenant', '''initech'''), 'OM003', 'there is no tenant ''initech'' that login ann may use', '%'),
  ('no such tenant', pg_temp.submission('tenant', '''umbrella'''), 'OM003', 'there is no tenant ''umbrella'' that login ann may use', '%'),
  ('the provider''s chain', pg_temp.submission('tenant', '''provider'''), 'OM003', 'there is no tenant ''provider'' that login ann may use', '%');
-- Sources.
insert into refused_case
select format('derived from %s', coalesce(source, 'null')), pg_temp.submission('derived_from', format('array[%L]::text[]', source)),
  'OM202', 'derived_from is not understood', '%at most 100 versions%'
from unnest(array[null, '', 'x', :'bens', :'bens' || '/', :'bens' || '/0', :'bens' || '/01', :'bens' || '/-1', :'bens' || '/1 ', :'bens' || '/1234567890123456789', '/1', :'bens' || '/1/1']) source;
insert into refused_case
select format('derived from %s, which the author may not read', source), pg_temp.submission('derived_from', format('array[%L]', source)),
  'OM204', format('there is no version %s that the author may read', source), '%released in the author''s workareas%'
from unnest(array[:'bens' || '/1', :'carls' || '/1', :'unknown' || '/1', :'anns' || '/2', :'anns' || '/999999999999999999']) source;
insert into refused_case
select format('a simulation made %s', provenance),
  pg_temp.submission('provenance', quote_literal(provenance), 'derived_from', format('array[%L]', :'simulated' || '/1')),
  'OM205', format('%s/1 is simulated, and what is made from it cannot be %s', :'simulated', provenance), '%Simulation cannot be taken off again.'
from unnest(array['observed', 'derived', 'imported']) provenance;
insert into refused_case
select format('a simulation made %s by its next version', provenance),
  pg_temp.submission('provenance', quote_literal(provenance), 'artifact', quote_literal(:'simulated'), 'derived_from', format('array[%L]', :'anns' || '/1')),
  'OM205', format('%s/1 is simulated, and its next version cannot be %s', :'simulated', provenance), '%Simulation cannot be taken off again.'
from unnest(array['observed', 'derived', 'imported']) provenance;
insert into refused_case
select 'more than 100 sources', pg_temp.submission('derived_from', format('array_fill(%L::text, array[101])', :'anns' || '/1')),
  'OM202', 'derived_from is not understood', '%at most 100 versions%';
-- Media types that are none.
insert into refused_case
select format('media type %L', media_type), pg_temp.submission('media_type', quote_literal(media_type)),
  'OM194', format('''%s'' is no media type for the body', media_type), '%lower case%'
from unnest(array[
  '', ' ', 'text', 'text/', '/plain', 'Text/plain', 'text/Plain', 'text/plain ', ' text/plain', 'text/plain;', 'text/plain; charset=utf-9',
  'text/plain; charset=', 'text/plain;charset=utf-8;charset=utf-8', 'text/plain; format=flowed', 'text/plain, text/html', 'text/*'
]) media_type;
-- Attachments.
create function pg_temp.attached(names text, types text, contents text) returns text language sql as $$
  select pg_temp.submission('attachment_names', names, 'attachment_types', types, 'attachments', contents)
$$;
insert into refused_case
select format('an attachment named %s', coalesce(to_json(name)::text, 'null')), pg_temp.attached(format('array[%L]::text[]', name), '''{text/plain}''', 'array[''a''::bytea]'),
  'OM199', format('%L is no name for attachment 1', left(name, 80)), '%1 to 255 bytes, no slash, no control or invisible character%'
from unnest(array['', null, '.', '..', '/', 'a/b', E'a\nb', E'a\tb', E'\x7f', repeat('x', 256), repeat('ä', 128)]) name;
insert into refused_case values
  ('two attachments of one name', pg_temp.attached('''{a,a}''', '''{text/plain,text/plain}''', 'array[''a'', ''b'']::bytea[]'),
    'OM199', '''a'' is no name for attachment 2', '%no other attachment%'),
  ('an empty attachment', pg_temp.attached('''{a}''', '''{text/plain}''', 'array['''']::bytea[]'), 'OM198', 'attachment 1 has 0 bytes', '%1 to 1048576 bytes%'),
  ('an attachment without content', pg_temp.attached('''{a}''', '''{text/plain}''', 'array[null]::bytea[]'), 'OM198', 'attachment 1 has no bytes', '%'),
  ('an attachment of another type', pg_temp.attached('''{a}''', '''{image/png}''', 'array[''a'']::bytea[]'), 'OM195', 'attachment 1 is not of type image/png: it does not begin as image/png does', '%'),
  ('an attachment of no type', pg_temp.attached('''{a}''', 'array[null]::text[]', 'array[''a'']::bytea[]'), 'OM194', 'a part has no media type', '%'),
  ('an attachment of a type that is none', pg_temp.attached('''{a}''', '''{text}''', 'array[''a'']::bytea[]'), 'OM194', '''text'' is no media type for attachment 1', '%'),
  ('a name too many', pg_temp.attached('''{a,b}''', '''{text/plain}''', 'array[''a'']::bytea[]'), 'OM211', '1 attachments with 2 names and 1 media types', '%at most 16 attachments%'),
  ('a type too few', pg_temp.attached('''{a}''', '''{}''', 'array[''a'']::bytea[]'), 'OM211', '1 attachments with 1 names and 0 media types', '%'),
  ('names of nothing', pg_temp.attached('''{a}''', '''{text/plain}''', '''{}'''), 'OM211', '0 attachments with 1 names and 1 media types', '%'),
  ('names of null', pg_temp.attached('''{a}''', '''{text/plain}''', 'null'), 'OM211', '0 attachments with 1 names and 1 media types', '%'),
  ('null for the names', pg_temp.attached('null', '''{text/plain}''', 'array[''a'']::bytea[]'), 'OM211', '1 attachments with 0 names and 1 media types', '%'),
  ('null for the types', pg_temp.attached('''{a}''', 'null', 'array[''a'']::bytea[]'), 'OM211', '1 attachments with 1 names and 0 media types', '%'),
  ('attachments of two dimensions', pg_temp.attached('''{a,b}''', '''{text/plain,text/plain}''', 'array[[''a''], [''b'']]::bytea[]'), 'OM211', '2 attachments with 2 names and 2 media types', '%plain array%'),
  ('names of two dimensions', pg_temp.attached('''{{a},{b}}''', '''{text/plain,text/plain}''', 'array[''a'', ''b'']::bytea[]'), 'OM211', '2 attachments with 2 names and 2 media types', '%plain array%'),
  ('types of two dimensions', pg_temp.attached('''{a,b}''', '''{{text/plain},{text/plain}}''', 'array[''a'', ''b'']::bytea[]'), 'OM211', '2 attachments with 2 names and 2 media types', '%plain array%'),
  ('attachments that make no table', pg_temp.attached('''{a,b}''', '''{text/plain,text/plain}''', 'array[[''a'', ''b'']]::bytea[]'), 'OM211', '2 attachments with 2 names and 2 media types', '%plain array%'),
  ('17 attachments', pg_temp.attached(
    'array(select n::text from generate_series(1, 17) n)', 'array_fill(''text/plain''::text, array[17])', 'array_fill(''a''::bytea, array[17])'),
    'OM211', '17 attachments with 17 names and 17 media types', '%at most 16 attachments%');
-- Claims.
insert into refused_case
select format('%s of 2049 bytes', claim), pg_temp.submission(claim, 'repeat(''x'', 2049)'), 'OM016',
  'the claims beside the content are longer than 2048 bytes together', '%'
from unnest(array['idempotency_key', 'operation', 'app_version', 'invocation_id', 'subject_id']) claim;
insert into refused_case values (
  'claims of 2049 bytes together', pg_temp.submission('operation', 'repeat(''x'', 1018)', 'subject_id', 'repeat(''ä'', 509)'), 'OM016',
  'the claims beside the content are longer than 2048 bytes together', '%');

select pg_temp.refused_to('ann', statement, sqlstate, message, hint, what || ' is refused') from refused_case;

-- A claim of the most bytes that the rest leaves.
select is(pg_temp.outcome('ann', pg_temp.submission('operation', format('repeat(''x'', %s)', 2048 - octet_length('research/2026')))), null, 'claims of 2048 bytes together are taken');
select is(pg_temp.outcome('ann', pg_temp.attached(format('array[%L]', name), '''{text/plain}''', 'array[''a''::bytea]')), null, format('an attachment may be named %L', name))
from unnest(array['a', '...', '.x', 'a b.txt', repeat('x', 255), repeat('ä', 127), '..a', 'con:']) name;
select is(pg_temp.outcome('ann', pg_temp.attached(
  'array(select n::text from generate_series(1, 16) n)', 'array_fill(''text/plain''::text, array[16])', 'array_fill(''a''::bytea, array[16])')), null, '16 attachments are taken');
select is(pg_temp.outcome('ann', pg_temp.attached('''[5:5]={a}''', '''[3:3]={text/plain}''', '''[0:0]={a}''::bytea[]')), null, 'arrays may begin where they like');
select is(pg_temp.outcome('ann', pg_temp.attached('null', 'null', 'null')), null, 'null for all three is none');
select is(pg_temp.outcome('ann', pg_temp.submission('derived_from', format('array_fill(%L::text, array[100])', :'anns' || '/1'))), null, '100 sources are taken');
select is(pg_temp.outcome('ann', pg_temp.submission(name, 'null')), null, format('null for %s is as nothing', name))
from unnest(array['tenant', 'artifact', 'derived_from', 'idempotency_key', 'operation', 'app_version', 'caused_by', 'invocation_id', 'subject_id']) name;
select is(pg_temp.outcome('ann', pg_temp.submission('derived_from', format('array[%L]', source))), null, format('derived from %s', source))
from unnest(array[:'anns' || '/1', upper(:'anns') || '/1']) source;
select is(pg_temp.outcome('ann', pg_temp.submission('provenance', quote_literal(provenance), 'derived_from', format('array[%L]', :'simulated' || '/1'))), null, 'a simulation goes on as one')
from unnest(array['simulated']) provenance;
select is(pg_temp.outcome('ann', pg_temp.submission('workarea', quote_literal(:'area'))), null, 'a workarea may be named by its id');

-- The same source twice is one.
select pg_temp.as_login('ann', pg_temp.submission('derived_from', format('array[%L, %L]', :'anns' || '/1', upper(:'anns') || '/1'))) as made \gset
select results_eq(
  format('select version, source_artifact_id, source_version from oml.derived_from where artifact_id = %L', :'made'),
  format('values (1::bigint, %L::uuid, 1::bigint)', :'anns'), 'a source that is named twice is one'
);
-- What was made from what is released by others.
select pg_temp.judged(:'bens', 'approve');
select is(pg_temp.outcome('ann', pg_temp.submission('derived_from', format('array[%L]', :'bens' || '/1'))), 'OM204', 'an approved version of another is no source yet');
select pg_temp.as_login('olga', format('select oml_promote(%L)', :'bens'));
select is(pg_temp.outcome('ann', pg_temp.submission('derived_from', format('array[%L]', :'bens' || '/1'))), null, 'a promoted one is');

-- Whoever may not.
select pg_temp.refused_to(login, pg_temp.submission(), sqlstate, message, '%', format('%s submits nothing there', login))
from (values
  ('carl', 'OM190', 'there is no workarea ''research/2026'' that principal ''carl'' is a member of'),
  ('eve', 'OM190', 'there is no workarea ''research/2026'' that principal ''eve'' is a member of'),
  ('stranger', 'OM001', 'login stranger is bound to no tenant it may use')
) v (login, sqlstate, message);
-- A workarea's id is no way around its membership.
select pg_temp.refused_to(
  login, pg_temp.submission('workarea', quote_literal(area)), 'OM190', format('there is no workarea %L that principal %L is a member of', area, login), '%oml_add_member()%',
  format('%s submits nothing to a workarea it names by id (%s)', login, area)
)
from (values ('carl', :'area'), ('carl', upper(:'area')), ('eve', :'area'), ('ann', :'archive'), ('ann', :'unknown')) v (login, area);
select pg_temp.as_login('olga', $$ select oml_remove_member('research/2026', 'ann') $$);
select pg_temp.refused_to('ann', pg_temp.submission(), 'OM190', 'there is no workarea ''research/2026'' that principal ''ann'' is a member of', '%', 'who left submits nothing more');
select pg_temp.refused_to('ann', pg_temp.submission('artifact', quote_literal(:'anns')), 'OM190', 'there is no workarea ''research/2026'' that principal ''ann'' is a member of', '%', 'nor a next version');
select pg_temp.refused_to('ann', pg_temp.submission('workarea', quote_literal(:'area')), 'OM190', format('there is no workarea %L that principal ''ann'' is a member of', :'area'), '%', 'nor by its id');

-- A transaction that may write nothing.
set local transaction_read_only = on;
select is(pg_temp.outcome('ben', pg_temp.submission()), 'OM051', 'nothing is submitted in a read-only transaction');

select * from finish();
rollback;
