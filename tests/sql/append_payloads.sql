-- Any JSON object PostgreSQL can hold is signed as it stands and verifies.
begin;
select plan(57);

create role clerk login in role oml_writer;
select oml_create_tenant('globex') as globex \gset
select oml_grant('clerk', 'globex');
select oml_register_event_type('note.written', max_bytes => 1048576);
create temporary table odd (n int, name text, payload jsonb);
insert into odd values
  (1, 'an empty object', '{}'),
  (2, 'an empty key', '{"": ""}'),
  (3, 'unicode of every plane', '{"grüß": "日本語 😀 \ud83d\ude00 \u00e9"}'),
  (4, 'combining and invisible characters', '{"a\u0301": "\u200b\u202e\ufeff", "\u00e1": "composed"}'),
  (5, 'escapes', '{"text": "quote \" backslash \\ slash \/ \b\f\n\r\t \u0001 \u001f \u007f"}'),
  (6, 'SQL and shell text', '{"x": "''; drop table oml.journal; -- $(rm) %s %L {} $$"}'),
  (7, 'a number beyond doubles', ('{"big": 1e400, "small": 1e-400, "negative": -1e400}')::jsonb),
  (8, 'integers beyond 64 bits', '{"n": 123456789012345678901234567890123456789012345678901234567890}'),
  (9, 'precision beyond doubles', '{"n": 0.1000000000000000000000000000000000000000000000001, "zero": 0.000, "minus": -0.0}'),
  (10, 'duplicate keys, of which the last counts', '{"a": 1, "a": 2, "a": {"b": 3}}'),
  (11, 'keys in no order', '{"zz": 1, "b": 2, "aaa": 3, "a": 4, "Z": 5}'),
  (12, 'every kind of value', '{"s": "", "n": 0, "t": true, "f": false, "z": null, "a": [], "o": {}}'),
  (13, 'nesting 3000 levels deep', (repeat('{"a":', 3000) || '1' || repeat('}', 3000))::jsonb),
  (14, 'arrays 3000 levels deep', ('{"a":' || repeat('[', 3000) || repeat(']', 3000) || '}')::jsonb),
  (15, 'ten thousand keys', (select jsonb_object_agg('key ' || i, i) from generate_series(1, 10000) i)),
  (16, 'a megabyte of text', jsonb_build_object('text', repeat('é', (1048576 - 12) / 2))),
  (17, 'keys of an envelope', '{"d": 1, "n": 2, "p": 3, "tenant_id": "x", "seq": -1, "prev_hash": "00"}');
grant select on odd to clerk;

set session authorization clerk;
select lives_ok(
  format('select oml_append(%L, payload) from odd where n = %s', 'note.written', n), format('a payload is appended: %s', name)
)
from odd order by n;
reset session authorization;

select is(j.payload, o.payload, format('and stored unchanged: %s', o.name))
from odd o join oml.journal j on j.tenant_id = :'globex' and j.seq = o.n + 1 order by o.n;
select is(j.payload::text, o.payload::text, format('and printed unchanged: %s', o.name))
from odd o join oml.journal j on j.tenant_id = :'globex' and j.seq = o.n + 1 order by o.n;

-- Claims are text of the same kind.
set session authorization clerk;
select lives_ok(
  $q$ select oml_append('note.written', '{}', operation => text, app_version => text, invocation_id => text,
       entity_type => text, entity_id => text, subject_id => text, idempotency_key => text)
     from (values (''), (E'line\nbreak\ttab'), ('日本語 😀'), ('''"\$$'), (E'\u0001'), (repeat('x', 292))) c (text) $q$,
  'claims may be any text'
);
reset session authorization;

select results_eq(
  $$ select ok, events, first_bad_seq, reason from oml_verify_chain('globex') $$,
  $$ values (true, 24::bigint, null::bigint, null::text) $$,
  'every signature, hash, link and column of them verifies, the time to the microsecond among them'
);

-- Times at the edge of a second: columns are compared with the signed microseconds.
select is(
  (select count(*) from oml.chain_rows(:'globex', 0, 100) r join oml.journal j on j.tenant_id = :'globex' and j.seq = r.seq
   where r.occurred_at = j.occurred_at),
  24::bigint, 'a verifier reads occurred_at exactly as it is stored'
);

-- The printing of values may change with settings of the session; what is signed and proved may not.
set session authorization clerk;
set timezone = 'Asia/Kathmandu';
set datestyle = 'German, DMY';
set intervalstyle = 'sql_standard';
set bytea_output = 'escape';
set extra_float_digits = -15;
set standard_conforming_strings = off;
set escape_string_warning = off;
set lc_numeric = 'C';
set client_encoding = 'LATIN1';
select lives_ok(
  $$ select oml_append(
       'note.written', '{"when": "x", "n": 0.1}', idempotency_key => 'settings', caused_by => '0190f3c8-0000-7000-8000-000000000001'
     ) $$,
  'an append does not depend on the session''s settings'
);
reset bytea_output;
reset timezone;
reset datestyle;
select is(
  (oml_append(
    'note.written', '{"when": "x", "n": 0.1}', idempotency_key => 'settings', caused_by => '0190f3c8-0000-7000-8000-000000000001'
  )).seq,
  25::bigint, 'nor does the sameness of a request'
);
reset all;
reset session authorization;
set bytea_output = 'escape';
set timezone = 'Asia/Kathmandu';
select results_eq(
  $$ select ok, events from oml_verify_chain('globex') $$, $$ values (true, 25::bigint) $$,
  'nor does the verifier'
);

select * from finish();
rollback;
