-- A verdict counts only on what was served, in full, of that version, to that reviewer, who is not the author.
begin;
\ir shared/refused.sql
\ir shared/submissions.sql
select * from no_plan();

create function pg_temp.served(artifact uuid, reviewer text default 'rita', version bigint default null) returns text language sql as $$
  select pg_temp.as_login(reviewer, format('select count(*) from oml_review_serve(%L, %L)', artifact, version))
$$;
create function pg_temp.verdict(artifact uuid, more text default '') returns text language sql as $$
  select format('select seq from oml_verdict(%L, ''approve''%s)', artifact, more)
$$;

-- Without serve, served to another, an older version, in part.
select pg_temp.submitted(attachments => 2) as artifact \gset
select pg_temp.refused_to(
  'rita', format('select oml_verdict(%L, %L, ''x'')', :'artifact', verdict), 'OM221', format('%s/1 was not served to principal ''rita'' in full', :'artifact'),
  '%oml_review_serve(%Each version is served anew.', format('%s without serve is refused', verdict)
)
from unnest(array['approve', 'reject']) verdict;
select is(pg_temp.served(:'artifact', 'rolf'), '3', 'it is served to a colleague');
select pg_temp.refused_to(
  'rita', pg_temp.verdict(:'artifact'), 'OM221', format('%s/1 was not served to principal ''rita'' in full', :'artifact'), '%', 'what was served to another is refused'
);
select is(pg_temp.served(:'artifact'), '3', 'body and attachments are served');
select results_eq(
  format('select part, principal from oml.served where artifact_id = %L and principal = ''rita'' order by part', :'artifact'),
  $$ values (0, 'rita'), (1, 'rita'), (2, 'rita') $$, 'as the state says'
);
select results_eq(
  format($$ select principal, payload -> 'parts' from oml.journal where artifact_id = %L and type = 'review.serve' order by seq desc limit 1 $$, :'artifact'),
  format(
    $$ select 'rita', jsonb_agg(jsonb_build_object('part', p.part, 'plaintext_digest', encode(p.plaintext_digest, 'hex'), 'ciphertext_digest', encode(sha256(b.ciphertext), 'hex')) order by p.part)
       from (values (0, sha256('A note.')), (1, sha256('attached 1')), (2, sha256('attached 2'))) p (part, plaintext_digest)
       join oml.body b on b.artifact_id = %L and b.part = p.part $$, :'artifact'
  ), 'and the journal, by the digests of plaintext and of what is stored'
);
savepoint before;
alter table oml.served disable trigger guard_rows;
delete from oml.served where part = 2;
alter table oml.served enable always trigger guard_rows;
select is(pg_temp.outcome('rita', pg_temp.verdict(:'artifact')), 'OM221', 'served in part does not count');
rollback to before;
select pg_temp.submitted(attachments => 2, body => 'better', artifact => :'artifact');
select pg_temp.refused_to(
  'rita', pg_temp.verdict(:'artifact'), 'OM221', format('%s/2 was not served to principal ''rita'' in full', :'artifact'), '%', 'an older version served does not count'
);
select is(pg_temp.outcome('rita', pg_temp.verdict(:'artifact', ', version => 1')), null, 'for the one that was served it does');

-- Never by the author.
select pg_temp.submitted('rolf') as own \gset
select pg_temp.refused_to(
  'rolf', call, 'OM220', format('principal ''rolf'' is the author of %s/1', :'own'), '%another principal%', format('%s of one''s own is refused', call)
)
from unnest(array[
  format('select * from oml_review_serve(%L)', :'own'), format('select oml_verdict(%L, ''approve'')', :'own'), format('select oml_verdict(%L, ''reject'', ''x'')', :'own')
]) call;
select is(pg_temp.as_login('rolf', format('select count(*) from oml_review_queue() where artifact_id = %L', :'own')), '0', 'it is not in the author''s queue');
select is(pg_temp.as_login('rita', format('select count(*) from oml_review_queue() where artifact_id = %L', :'own')), '1', 'but in another''s');
select pg_temp.judged(:'own', 'approve');
select pg_temp.refused_to(
  'rolf', format('select oml_verdict(%L, ''approve'')', :'own'), 'OM220', format('principal ''rolf'' is the author of %s/1', :'own'), '%', 'nor once another has judged'
);

-- A login with two principals: what counts is as whom it acts.
do $$
begin
  perform oml_grant('rolf', 'globex', '{review,submit}', 'rolf of audit');
end
$$;
select pg_temp.refused_to('rolf', 'select * from oml_review_queue()', 'OM136', 'login rolf may act as several principals and named none', '%oml_use(principal%', 'a login of two principals says as which');
create function pg_temp.as_principal(principal text, statement text) returns text language plpgsql as $$
declare
  answer text;
begin
  set local session authorization rolf;
  perform oml_use(principal => principal);
  execute statement into answer;
  perform set_config('oml.transaction', '', true);
  reset session authorization;
  return answer;
end
$$;
select pg_temp.as_principal('rolf', $$ select artifact_id from oml_submit('research/2026', 'x', 'text/plain', 'observed') $$) as by_rolf \gset
select is(author, 'rolf', 'the author is the principal') from oml.artifact_version where artifact_id = :'by_rolf';
select throws_ok(format('select pg_temp.as_principal(%L, %L)', 'rolf', format('select count(*) from oml_review_serve(%L)', :'by_rolf')), 'OM220', null, 'as the author it reviews nothing of it');
select is(pg_temp.as_principal('rolf of audit', format('select count(*) from oml_review_serve(%L)', :'by_rolf')), '1', 'as another principal it is another reviewer');
select is(pg_temp.as_principal('rolf of audit', format('select convert_from(content, ''UTF8'') from oml_fetch(%L)', :'by_rolf')), 'x', 'and reads what it was served');
select throws_ok($$ select pg_temp.as_principal('rita', 'select 1') $$, 'OM135', null, 'nobody else');
select oml_revoke('rolf', 'globex', 'rolf of audit');

-- An impersonation session takes no part.
do $$
begin
  perform oml_grant('eve', 'provider', '{operate}', 'support');
  perform oml_grant('ann', 'globex', '{append,submit,review}');
end
$$;
set session authorization eve;
select oml_impersonate('globex', 'ann', 'ticket 7') as session \gset
reset session authorization;
create function pg_temp.impersonating(session uuid, statement text) returns text language plpgsql as $$
begin
  perform oml_use(impersonation => session);
  execute statement;
  return 'done';
end
$$;
select pg_temp.refused_to(
  'eve', format('select pg_temp.impersonating(%L, %L)', :'session', call), 'OM215', 'an impersonation session takes no part in submissions and reviews', '%Let the principal itself%',
  format('%s is refused under impersonation', call)
)
from unnest(array[
  $$ select oml_submit('research/2026', 'x', 'text/plain', 'observed') $$, 'select * from oml_data_key()', 'select * from oml_my_submissions()',
  format('select * from oml_fetch(%L)', :'artifact'), format('select * from oml_history(%L)', :'artifact'), 'select * from oml_review_queue()',
  format('select * from oml_review_serve(%L)', :'own'), format('select oml_verdict(%L, ''approve'')', :'own'), format('select oml_promote(%L)', :'own'),
  format('select oml_demote(%L, ''x'')', :'own'), format('select oml_reassign(%L, ''archive'', ''x'')', :'own'), format('select oml_end_simulation(%L, ''x'')', :'own'),
  'select oml_create_workarea(''x'')', 'select oml_move_workarea(''archive'', ''x'')', 'select oml_add_member(''archive'', ''eve'')', 'select oml_remove_member(''archive'', ''carl'')'
]) call;

-- What is no verdict.
select pg_temp.submitted() as artifact \gset
select is(pg_temp.served(:'artifact'), '1', 'a version waits');
select pg_temp.refused_to('rita', format('select oml_verdict(%L, %L)', :'artifact', verdict), 'OM213', format('%L is no verdict', verdict), 'A verdict is approve or reject.', format('%L is refused', verdict))
from unnest(array['', 'approved', 'APPROVE', 'promote', null]) verdict;
select pg_temp.refused_to('rita', format('select oml_verdict(%L, ''reject'', %L)', :'artifact', reason), 'OM212', 'reject needs a reason', '%the author reads it%', format('reject for the reason %L is refused', reason))
from unnest(array['', '  ', null]) reason;
select pg_temp.refused_to('rita', format('select oml_verdict(%L, ''approve'')', artifact), 'OM203', format('there is no artifact %s that the caller may act on', coalesce(artifact::text, 'null')), '%', format('a verdict on %s is refused', coalesce(artifact::text, 'null')))
from unnest(array[gen_random_uuid(), null]) artifact;
select pg_temp.refused_to('rita', format('select * from oml_review_serve(%L)', artifact), 'OM203', format('there is no artifact %s that the caller may act on', coalesce(artifact::text, 'null')), '%', format('a serve of %s is refused', coalesce(artifact::text, 'null')))
from unnest(array[gen_random_uuid(), null]) artifact;
select pg_temp.refused_to('rita', format('select oml_verdict(%L, ''approve'', repeat(''x'', 2049))', :'artifact'), 'OM016', 'the claims beside the content are longer than 2048 bytes together', '%', 'a reason of 2049 bytes is refused');
select is(pg_temp.outcome('rita', format('select oml_verdict(%L, ''approve'', repeat(''x'', 2048))', :'artifact')), null, 'one of 2048 is not');
select is(pg_temp.outcome('rita', format('select oml_verdict(%L, ''approve'', %s)', :'artifact', argument)), null, format('null for %s is as nothing', argument))
from unnest(array['reason => null', 'version => null', 'tenant => null', 'report => null', 'accept_findings => null', 'idempotency_key => null', 'operation => null', 'app_version => null']) argument;

-- The report of the reviewer's client.
create function pg_temp.entry(part int, basis text, findings jsonb default '[]', body text default 'A note.') returns jsonb language sql as $$
  select jsonb_strip_nulls(jsonb_build_object(
    'part', part, 'plaintext_digest', encode(sha256(convert_to(body, 'UTF8')), 'hex'), 'basis', basis, 'media_type', 'text/plain',
    'extractor', case basis when 'text' then 'plain 1' end, 'scanner', 'gitleaks 8'
  )) || jsonb_build_object('findings', findings)
$$;
select pg_temp.refused_to(
  'rita', format('select oml_verdict(%L, ''approve'', report => %L)', :'artifact', report), 'OM223', format('the report is none on the parts of %s/1', :'artifact'), '%an object for each part%',
  format('the report %s is refused', left(report::text, 60))
)
from (values
  ('null'::jsonb), ('{}'), ('[]'), ('1'), ('"x"'), ('[1]'), ('[[]]'), ('[null]'), ('[{}]'),
  (jsonb_build_array(pg_temp.entry(1, 'text'))), (jsonb_build_array(pg_temp.entry(0, 'text'), pg_temp.entry(1, 'text'))),
  (jsonb_build_array(pg_temp.entry(0, 'digest'))), (jsonb_build_array(pg_temp.entry(0, 'text') - 'extractor')), (jsonb_build_array(pg_temp.entry(0, 'opaque') || '{"extractor": "x"}')),
  (jsonb_build_array(pg_temp.entry(0, 'text') - 'scanner')), (jsonb_build_array(pg_temp.entry(0, 'text') - 'findings')), (jsonb_build_array(pg_temp.entry(0, 'text') || '{"findings": {}}')),
  (jsonb_build_array(pg_temp.entry(0, 'text') || '{"more": 1}')), (jsonb_build_array(pg_temp.entry(0, 'text') || '{"part": "0"}')),
  -- Of another type, other bytes or another basis than the part has; and more of a finding than kind and place.
  (jsonb_build_array(pg_temp.entry(0, 'opaque'))), (jsonb_build_array(pg_temp.entry(0, 'text') || '{"media_type": "image/png"}')),
  (jsonb_build_array(pg_temp.entry(0, 'text', body => 'An older note.'))), (jsonb_build_array(pg_temp.entry(0, 'text') - 'plaintext_digest')),
  (jsonb_build_array(pg_temp.entry(0, 'text', '[1]'))), (jsonb_build_array(pg_temp.entry(0, 'text', '[{}]'))), (jsonb_build_array(pg_temp.entry(0, 'text', '[{"kind": "a"}]'))),
  (jsonb_build_array(pg_temp.entry(0, 'text', '[{"kind": "a", "line": 1, "count": 1}]'))), (jsonb_build_array(pg_temp.entry(0, 'text', '[{"kind": "a", "line": "1"}]'))),
  (jsonb_build_array(pg_temp.entry(0, 'text', '[{"kind": "a", "line": 0}]'))), (jsonb_build_array(pg_temp.entry(0, 'text', '[{"kind": "a", "line": 1.5}]'))),
  (jsonb_build_array(pg_temp.entry(0, 'text', '[{"kind": "A note.", "line": 1}]'))), (jsonb_build_array(pg_temp.entry(0, 'text', '[{"kind": "a", "line": 1, "content": "A note."}]'))),
  (jsonb_build_array(pg_temp.entry(0, 'text') || jsonb_build_object('scanner', repeat('x', 201)))), (jsonb_build_array(pg_temp.entry(0, 'text') || jsonb_build_object('extractor', repeat('x', 201))))
) v (report);
select pg_temp.refused_to(
  'rita', format('select oml_verdict(%L, ''approve'', report => %L)', :'artifact', report), 'OM223', format('a report of %s bytes', octet_length(report::text)),
  '%at most 32768 bytes%', 'a report too long is refused'
)
from (select jsonb_build_array(pg_temp.entry(0, 'text', (select jsonb_agg(jsonb_build_object('kind', 'aws-key', 'line', n)) from generate_series(1, 1100) n)))) v (report);
select pg_temp.refused_to(
  'rita', format('select oml_verdict(%L, ''approve'', report => %L)', :'artifact', jsonb_build_array(pg_temp.entry(0, 'text', '[{"kind": "aws-key", "line": 1}]'))),
  'OM222', format('the scan of %s/1 found something', :'artifact'), '%accept_findings => true%', 'what was found keeps it from being approved'
);
select is(pg_temp.outcome('rita', format('select oml_verdict(%L, ''approve'', report => %L, accept_findings => null)', :'artifact', jsonb_build_array(pg_temp.entry(0, 'text', '[{"kind": "a", "count": 2}]')))), 'OM222', 'null accepts nothing');
select is(pg_temp.outcome('rita', format('select oml_verdict(%L, ''reject'', ''x'', report => %L)', :'artifact', jsonb_build_array(pg_temp.entry(0, 'text', '[{"kind": "a", "count": 2}]')))), null, 'nor from being rejected');
select is(pg_temp.outcome('rita', format('select oml_verdict(%L, ''approve'', report => %L)', :'artifact', jsonb_build_array(pg_temp.entry(0, 'text')))), null, 'a clean one is taken');
select is(pg_temp.outcome('rita', format('select oml_verdict(%L, ''approve'', report => %L, accept_findings => true)', :'artifact', jsonb_build_array(pg_temp.entry(0, 'text', '[{"kind": "a", "line": 2}]')))), 'OM212', 'what was found is accepted with a reason');
select pg_temp.as_login('rita', format('select seq from oml_verdict(%L, ''approve'', ''a test key'', report => %L, accept_findings => true)', :'artifact', jsonb_build_array(pg_temp.entry(0, 'text', '[{"kind": "aws-key", "line": 1}]')))) as seq \gset
select results_eq(
  format('select payload - %L from oml.journal where tenant_id = %L and seq = %s', 'reason', :'globex', :seq),
  format(
    'select jsonb_build_object(''verb'', ''approve'', ''verdict'', ''approve'', ''from'', ''held'', ''to'', ''approved'', ''findings_accepted'', true, ''review'', %L::jsonb)',
    jsonb_build_array(pg_temp.entry(0, 'text', '[{"kind": "aws-key", "line": 1}]'))
  ), 'the event says what was scanned, found and accepted'
);
select pg_temp.submitted(attachments => 1) as artifact \gset
select pg_temp.judged(:'artifact', 'approve');
select results_eq(
  format($$ select payload -> 'review' from oml.journal where artifact_id = %L and type = 'review.verdict' $$, :'artifact'),
  $$ values ('[{"part": 0, "basis": "digest"}, {"part": 1, "basis": "digest"}]'::jsonb) $$, 'without a report it says that there is none'
);

-- What is not up for review.
select pg_temp.refused_to(
  'rita', format('select * from oml_review_serve(%L)', artifact), 'OM225', format('%s/1 is %s and not up for review', artifact, state), '%oml_review_queue()%', format('what is %s is not served', state)
)
from (
  select s.state, pg_temp.brought_to(s.state, 'simulated') as artifact
  from unnest(array['approved', 'rejected', 'promoted', 'demoted', 'reassigned', 'simulation-ended']) s (state) offset 0
) v;

-- The queue.
select is_empty(
  $$ select v.artifact_id from oml.artifact_version v where v.state = 'held' and v.tenant_id = (select tenant_id from oml.tenant where name = 'globex')
     and not exists (select pg_temp.as_login('rita', format('select 1 from oml_review_queue() where artifact_id = %L and version = %s', v.artifact_id, v.version)) offset 0) $$,
  'all that is held waits'
);
select pg_temp.submitted(body => format('number %s', n)) from generate_series(1, 5) n;
select is(
  pg_temp.as_login('rita', format('select count(*) from oml_review_queue(max_rows => %s)', n)), least(n, (select count(*) from oml.artifact_version where state = 'held'))::text, format('a page of %s', n)
)
from unnest(array[1, 2, 1000]) n;
select is(
  pg_temp.as_login('rita', 'select array_agg(submitted_seq order by n) = array_agg(submitted_seq order by submitted_seq) from oml_review_queue() with ordinality q (submitted_seq, a, b, c, d, e, f, g, h, i, j, k, n)'), 'true', 'oldest first'
);
select is(
  pg_temp.as_login('rita', 'select count(*) from oml_review_queue(after_seq => (select max(submitted_seq) from oml_review_queue()))'), '0', 'and after the last there is nothing'
);
select pg_temp.submitted(attachments => 1) as artifact \gset
select is(pg_temp.as_login('rita', format('select is_served from oml_review_queue() where artifact_id = %L', :'artifact')), 'false', 'not served yet');
select is(pg_temp.served(:'artifact'), '2', 'served');
select is(pg_temp.as_login('rita', format('select is_served from oml_review_queue() where artifact_id = %L', :'artifact')), 'true', 'served to this reviewer');
select is(pg_temp.as_login('rolf', format('select is_served from oml_review_queue() where artifact_id = %L', :'artifact')), 'false', 'and to no other');
select is(pg_temp.as_login('eve', 'select count(*) from oml_review_queue(''initech'')'), '0', 'another tenant''s reviewer sees none of it');

select is_empty($$ select * from oml_fold_check('globex') $$, 'the state is what the journal says');
select is_empty($$ select * from oml_verify_chain('globex') where fault is not null $$, 'and the chain verifies');
select * from finish();
rollback;
