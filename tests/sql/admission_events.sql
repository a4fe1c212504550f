-- The events of submissions, reviews and workareas, column by column and with their whole payload.
begin;
\ir shared/refused.sql
\ir shared/submissions.sql
\ir shared/sealed.sql
select * from no_plan();

-- An event but for what differs from run to run.
create function pg_temp.event(event_seq bigint) returns jsonb language sql as $$
  select jsonb_strip_nulls(to_jsonb(j) - '{tenant_id,event_id,occurred_at,prev_hash,hash,kid,envelope,request_digest,synchronous_commit,seq}'::text[] - 'payload')
    || jsonb_build_object('payload', j.payload)
  from oml.journal j
  join oml.tenant t on t.tenant_id = j.tenant_id
  where t.name = 'globex' and j.seq = event_seq
$$;
create function pg_temp.head() returns bigint language sql as $$
  select max(j.seq) from oml.journal j join oml.tenant t on t.tenant_id = j.tenant_id where t.name = 'globex'
$$;
-- What such an event is: by whom, what allowed it, and about which version.
create function pg_temp.expected(type text, login text, auth text, payload jsonb, about jsonb default '{}') returns jsonb language sql as $$
  select jsonb_build_object(
    'type', type, 'schema_version', 1, 'pii_class', 'none', 'writer', login, 'principal', login, 'authorization', auth, 'payload', payload
  ) || about
$$;
-- The columns that name a version, or one of its attachments, with both digests.
create function pg_temp.about(artifact uuid, version bigint, content text, part int default 0) returns jsonb language sql as $$
  select jsonb_build_object(
    'artifact_id', artifact, 'artifact_version', version,
    'plaintext_digest', sha256(convert_to(content, 'UTF8')), 'ciphertext_digest', sha256(b.ciphertext)
  )
  from oml.body b
  where b.artifact_id = artifact and b.version = about.version and b.part = about.part
$$;
create function pg_temp.hex_digests(artifact uuid, version bigint, part int, content text) returns jsonb language sql as $$
  select jsonb_build_object('plaintext_digest', encode(sha256(convert_to(content, 'UTF8')), 'hex'), 'ciphertext_digest', encode(sha256(b.ciphertext), 'hex'))
  from oml.body b
  where b.artifact_id = artifact and b.version = hex_digests.version and b.part = hex_digests.part
$$;
create function pg_temp.data_key(artifact uuid, version bigint) returns jsonb language sql as $$
  select jsonb_build_object('dek_id', d.dek_id, 'kek_epoch', d.kek_epoch)
  from oml.dek d
  where d.artifact_id = artifact and d.version = data_key.version
$$;
create temporary table claims (claim jsonb);
insert into claims values (
  '{"operation": "op", "app_version": "app 7", "caused_by": "00000000-0000-0000-0000-00000000000c", "invocation_id": "call 9", "subject_id": "subject 3"}'
);
create function pg_temp.claimed() returns text language sql as $$
  select string_agg(format('%I => %L', c.key, c.value), ', ' order by c.key) from claims, jsonb_each_text(claim) c
$$;

-- Submissions: alone, with all that may be said; and with attachments.
select pg_temp.submitted('ann', body => 'source') as source \gset
select is(
  pg_temp.event(pg_temp.head()),
  pg_temp.expected('submission.submit', 'ann', 'membership:submit', jsonb_build_object(
    'workarea_id', :'area', 'path', 'research/2026', 'provenance', 'observed', 'media_type', 'text/plain', 'bytes', 6,
    'attachments', '[]'::jsonb, 'derived_from', '[]'::jsonb, 'sealed_by', 'server', 'to', 'held'
  ) || pg_temp.data_key(:'source', 1), pg_temp.about(:'source', 1, 'source')),
  'a submission that says no more than it must'
);
select is((pg_temp.event(pg_temp.head()) #>> '{payload,kek_epoch}')::int, 1, 'its data key is wrapped under the first key-encryption key');
select pg_temp.as_login('ann', format(
  'select artifact_id from oml_submit(%L, convert_to(%L, %L), %L, %L, derived_from => array[%L, %L], idempotency_key => %L, %s)',
  'research/2026', 'Zoë', 'UTF8', 'text/markdown', 'derived', :'source' || '/1', upper(:'source') || '/1', 'key 1', pg_temp.claimed()
)) as artifact \gset
select is(
  pg_temp.event(pg_temp.head()),
  pg_temp.expected('submission.submit', 'ann', 'membership:submit', jsonb_build_object(
    'workarea_id', :'area', 'path', 'research/2026', 'provenance', 'derived', 'media_type', 'text/markdown', 'bytes', 4,
    'attachments', '[]'::jsonb, 'derived_from', jsonb_build_array(jsonb_build_object('artifact_id', :'source', 'version', 1)),
    'sealed_by', 'server', 'to', 'held'
  ) || pg_temp.data_key(:'artifact', 1), pg_temp.about(:'artifact', 1, 'Zoë') || claim || '{"idempotency_key": "key 1"}'),
  'one that says all it may'
)
from claims;
select pg_temp.as_login('ann', format(
  $$ select seq from oml_submit(%L, 'two', 'text/plain', 'derived', artifact => %L, derived_from => array[%L], idempotency_key => 'key 2', %s,
       attachment_names => '{b.md,a.txt}', attachment_types => '{text/markdown,text/plain}', attachments => array['first', 'the second']::bytea[]) $$,
  :'area', :'artifact', :'artifact' || '/1', pg_temp.claimed()
)) as seq \gset
select is(
  pg_temp.event(:seq),
  pg_temp.expected('submission.submit', 'ann', 'membership:submit', jsonb_build_object(
    'workarea_id', :'area', 'path', 'research/2026', 'provenance', 'derived', 'media_type', 'text/plain', 'bytes', 3,
    'attachments', jsonb_build_array(pg_temp.hex_digests(:'artifact', 2, 1, 'first'), pg_temp.hex_digests(:'artifact', 2, 2, 'the second')),
    'derived_from', jsonb_build_array(jsonb_build_object('artifact_id', :'artifact', 'version', 1)), 'sealed_by', 'server', 'to', 'held'
  ) || pg_temp.data_key(:'artifact', 2), pg_temp.about(:'artifact', 2, 'two') || claim || '{"idempotency_key": "key 2"}'),
  'one with attachments, whose digests it has'
)
from claims;
select is(
  pg_temp.event(:seq + part),
  pg_temp.expected('submission.attach', 'ann', 'membership:submit', jsonb_build_object(
    'part', part, 'name', name, 'media_type', media_type, 'bytes', length(content)
  ), pg_temp.about(:'artifact', 2, content, part) || claim),
  format('its attachment %s', part)
)
from claims, (values (1, 'b.md', 'text/markdown', 'first'), (2, 'a.txt', 'text/plain', 'the second')) v (part, name, media_type, content);
select is(pg_temp.head(), :seq + 2::bigint, 'and there is nothing more');

-- What the client sealed and the writer signed.
select s.artifact_id as sealed, s.seq from pg_temp.as_login('ann', format(
  'select s::text from oml_submit_sealed(workarea => %L, provenance => %L, idempotency_key => %L, %s, %s) s',
  'research/2026', 'imported', 'key 3', pg_temp.claimed(), pg_temp.sealed(:'seed', 'sealed', 'one', 'the other')
)) answer, cast(answer as oml.submission_receipt) s \gset
select is(
  pg_temp.event(:seq),
  pg_temp.expected('submission.submit', 'ann', 'membership:submit', jsonb_build_object(
    'workarea_id', :'area', 'path', 'research/2026', 'provenance', 'imported', 'media_type', 'text/plain', 'bytes', 6,
    'attachments', jsonb_build_array(pg_temp.hex_digests(:'sealed', 1, 1, 'one'), pg_temp.hex_digests(:'sealed', 1, 2, 'the other')),
    'derived_from', '[]'::jsonb, 'sealed_by', 'client', 'to', 'held',
    'writer_kid', encode(substr(sha256(pg_temp.public_key(:'seed')), 1, 8), 'hex'), 'writer_envelope_digest', encode(sha256(w.envelope), 'hex')
  ) || pg_temp.data_key(:'sealed', 1), pg_temp.about(:'sealed', 1, 'sealed') || claim || '{"idempotency_key": "key 3"}'),
  'a submission that was sealed and signed'
)
from claims, oml.writer_envelope w where w.artifact_id = :'sealed' and w.version = 1;
select is(
  pg_temp.event(:seq + part),
  pg_temp.expected('submission.attach', 'ann', 'membership:submit', jsonb_build_object(
    'part', part, 'name', part::text, 'media_type', 'text/plain', 'bytes', length(content)
  ), pg_temp.about(:'sealed', 1, content, part) || claim),
  format('its attachment %s', part)
)
from claims, (values (1, 'one'), (2, 'the other')) v (part, content);
select pg_temp.as_login('ann', format('select artifact_id from oml_submit_sealed(workarea => %L, provenance => %L, %s)', 'research/2026', 'imported', pg_temp.sealed(null, 'unsigned'))) as unsigned \gset
select is(
  pg_temp.event(pg_temp.head()),
  pg_temp.expected('submission.submit', 'ann', 'membership:submit', jsonb_build_object(
    'workarea_id', :'area', 'path', 'research/2026', 'provenance', 'imported', 'media_type', 'text/plain', 'bytes', 8,
    'attachments', '[]'::jsonb, 'derived_from', '[]'::jsonb, 'sealed_by', 'client', 'to', 'held'
  ) || pg_temp.data_key(:'unsigned', 1), pg_temp.about(:'unsigned', 1, 'unsigned')),
  'one that was sealed, and not signed'
);

-- The serve, with the digests of each part.
select pg_temp.as_login('rita', format('select count(*) from oml_review_serve(%L)', :'artifact'));
select is(
  pg_temp.event(pg_temp.head()),
  pg_temp.expected('review.serve', 'rita', 'membership:review', jsonb_build_object('parts', jsonb_build_array(
    '{"part": 0}'::jsonb || pg_temp.hex_digests(:'artifact', 2, 0, 'two'),
    '{"part": 1}'::jsonb || pg_temp.hex_digests(:'artifact', 2, 1, 'first'),
    '{"part": 2}'::jsonb || pg_temp.hex_digests(:'artifact', 2, 2, 'the second')
  )), pg_temp.about(:'artifact', 2, 'two')),
  'the serve'
);

-- Each step of the lifecycle: which version, by its digests, and what was claimed.
create temporary table step (n int, what text, login text, auth text, artifact uuid, version bigint, content text, type text, call text, payload jsonb);
select pg_temp.submitted('ann', 'simulated', body => 'simulated') as simulated \gset
select pg_temp.submitted('ann', body => 'poor') as poor \gset
select pg_temp.as_login('rita', format('select count(*) from oml_review_serve(%L)', :'poor'));
insert into step values
  (1, 'approval', 'rita', 'membership:review', :'artifact', 2, 'two', 'review.verdict', 'oml_verdict(%L, ''approve'', ''sound''', jsonb_build_object(
    'verb', 'approve', 'from', 'held', 'to', 'approved', 'reason', 'sound', 'verdict', 'approve', 'findings_accepted', false,
    'review', '[{"part": 0, "basis": "digest"}, {"part": 1, "basis": "digest"}, {"part": 2, "basis": "digest"}]'::jsonb)),
  (2, 'rejection', 'rita', 'membership:review', :'poor', 1, 'poor', 'review.verdict', 'oml_verdict(%L, ''reject'', ''thin'', accept_findings => true', jsonb_build_object(
    'verb', 'reject', 'from', 'held', 'to', 'rejected', 'reason', 'thin', 'verdict', 'reject', 'findings_accepted', true,
    'review', '[{"part": 0, "basis": "digest"}]'::jsonb)),
  (3, 'promotion', 'olga', 'membership:operate', :'artifact', 2, 'two', 'artifact.promoted', 'oml_promote(%L, ''ready''',
    '{"verb": "promote", "from": "approved", "to": "promoted", "reason": "ready"}'),
  (4, 'reassignment', 'olga', 'membership:operate', :'artifact', 2, 'two', 'artifact.reassigned', 'oml_reassign(%L, ''archive'', ''done''',
    jsonb_build_object('verb', 'reassign', 'from', 'promoted', 'to', 'reassigned', 'reason', 'done', 'workarea_id', :'archive', 'path', 'archive')),
  (5, 'demotion', 'olga', 'membership:operate', :'artifact', 2, 'two', 'artifact.demoted', 'oml_demote(%L, ''wrong''',
    '{"verb": "demote", "from": "reassigned", "to": "demoted", "reason": "wrong"}'),
  (6, 'end of the simulation', 'olga', 'membership:operate', :'simulated', 1, 'simulated', 'artifact.simulation-ended', 'oml_end_simulation(%L, ''over''',
    '{"verb": "end-simulation", "from": "held", "to": "simulation-ended", "reason": "over"}');
select set_eq('select type from step', $$ select event_type from oml.lifecycle() where verb <> 'submit' $$, 'each event of the lifecycle is looked at');
create function pg_temp.taken(step step) returns setof text language plpgsql as $$
declare
  seq bigint := pg_temp.as_login(
    step.login, format('select seq from ' || step.call || ', idempotency_key => %L, operation => %L, app_version => %L)', step.artifact, 'step ' || step.n, 'op', 'app 7')
  );
begin
  return next is(seq, pg_temp.head(), format('the %s is one event', step.what));
  return next is(
    pg_temp.event(seq),
    pg_temp.expected(
      step.type, step.login, step.auth, step.payload,
      pg_temp.about(step.artifact, step.version, step.content)
        || jsonb_build_object('idempotency_key', 'step ' || step.n, 'operation', 'op', 'app_version', 'app 7')
    ), format('of which version the %s is, and what was claimed', step.what)
  );
end
$$;
select pg_temp.taken(s) from (select * from step order by n) s;

-- Workareas.
create function pg_temp.told(call text, type text, payload jsonb) returns text language plpgsql as $$
declare
  before bigint := pg_temp.head();
begin
  perform pg_temp.as_login('olga', 'select ' || call);
  return is(
    jsonb_build_array(pg_temp.head() - before, pg_temp.event(pg_temp.head())),
    jsonb_build_array(1, pg_temp.expected(type, 'olga', 'membership:operate', payload)), format('%s is told by one event', call)
  );
end
$$;
select pg_temp.as_login('olga', 'select oml_create_workarea(''fresh'')') as fresh \gset
select is(
  pg_temp.event(pg_temp.head()), pg_temp.expected('workarea.created', 'olga', 'membership:operate', jsonb_build_object('workarea_id', :'fresh', 'path', 'fresh')),
  'a workarea that is made'
);
select pg_temp.told('oml_move_workarea(''fresh'', ''later'')', 'workarea.moved', jsonb_build_object('workarea_id', :'fresh', 'from', 'fresh', 'path', 'later'));
select pg_temp.told('oml_add_member(''later'', ''ann'')', 'workarea.joined', jsonb_build_object('workarea_id', :'fresh', 'principal', 'ann'));
select pg_temp.told('oml_remove_member(''later'', ''ann'')', 'workarea.left', jsonb_build_object('workarea_id', :'fresh', 'principal', 'ann'));
select is_empty(
  $$ select type from oml.event_type where reserved and split_part(type, '.', 1) in ('workarea', 'submission', 'review', 'artifact')
     except select type from oml.journal $$, 'no event of submissions is left out'
);

select is_empty($$ select * from oml_fold_check('globex') $$, 'the state is what the journal says');
select results_eq($$ select ok from oml_verify_chain('globex') $$, 'values (true)', 'and each column is what was signed');
select * from finish();
rollback;
