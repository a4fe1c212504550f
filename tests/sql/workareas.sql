-- Workareas: their paths, their members, and what a move leaves as it was.
begin;
\ir shared/refused.sql
\ir shared/submissions.sql
select * from no_plan();

-- Paths.
select pg_temp.refused_to(
  'olga', format(call, path), 'OM191', format('%L is no path of a workarea', left(path, 80)), '%at most 512 bytes, none of them%',
  format('%s is no path for %s', coalesce(to_json(path)::text, 'null'), call)
)
from unnest(array[
  null, '', '/', '/a', 'a/', 'a//b', E'a\nb', E'a/\x01', '00000000-0000-0000-0000-000000000000', 'ABCDEF00-0000-0000-0000-000000000000', repeat('x', 513),
  repeat('ä', 257), '.', 'a/..', '../a', 'a/./b', ' a', 'a ', 'a/ b', 'a\b', U&'a\202eb', U&'a\200b'
]) path
cross join (values ('select oml_create_workarea(%L)'), ('select oml_move_workarea(''archive'', %L)')) v (call);
select is(pg_temp.outcome('olga', format('select oml_create_workarea(%L)', path)), null, format('%L is one', path))
from unnest(array['a', 'a/b/c', 'Ä ö', 'a''b', repeat('x', 512), '00000000-0000-0000-0000-000000000000/a']) path;
select pg_temp.refused_to('olga', call, 'OM192', 'there is a workarea ''archive'' already', '%move that workarea away%', format('%s takes no path that is taken', call))
from unnest(array['select oml_create_workarea(''archive'')', 'select oml_move_workarea(''research/2026'', ''archive'')', 'select oml_move_workarea(''archive'', ''archive'')']) call;
select pg_temp.refused_to('olga', format(call, workarea), 'OM190', format('there is no workarea %L', workarea), '%', format('%s for %L is refused', call, workarea))
from unnest(array['nowhere', '', null, '00000000-0000-0000-0000-000000000000']) workarea
cross join (values ('select oml_move_workarea(%L, ''b'')'), ('select oml_add_member(%L, ''ann'')'), ('select oml_remove_member(%L, ''ann'')')) v (call);
select pg_temp.refused_to(
  'olga', format(call, principal), 'OM009', format('a principal of %s bytes', coalesce(octet_length(principal), 0)), '%1 to 256 bytes%', format('%s for %L is refused', call, principal)
)
from unnest(array[null, '', repeat('x', 257), repeat('ä', 129)]) principal
cross join (values ('select oml_add_member(''archive'', %L)'), ('select oml_remove_member(''archive'', %L)')) v (call);
select is(pg_temp.outcome('olga', format('select oml_add_member(''archive'', %L)', principal)), null, 'a principal of 256 bytes is one')
from unnest(array[repeat('x', 256), repeat('ä', 128)]) principal;

-- Members.
select max(seq) as head from oml.journal where tenant_id = :'globex' \gset
select pg_temp.as_login('olga', 'select oml_add_member(''archive'', ''ann'')');
select pg_temp.as_login('olga', 'select oml_add_member(''archive'', ''ann'')');
select pg_temp.as_login('olga', 'select oml_remove_member(''archive'', ''nobody'')');
select pg_temp.as_login('olga', format('select oml_remove_member(%L, ''ann'')', :'archive'));
select pg_temp.as_login('olga', 'select oml_remove_member(''archive'', ''ann'')');
select pg_temp.as_login('olga', 'select oml_add_member(''archive'', ''ann'')');
select results_eq(
  format('select type, payload, principal, "authorization" from oml.journal where tenant_id = %L and seq > %s order by seq', :'globex', :head),
  format(
    $$ select t, jsonb_build_object('workarea_id', %L, 'principal', 'ann'), 'olga', 'membership:operate'
       from unnest(array['workarea.joined', 'workarea.left', 'workarea.joined']) t $$, :'archive'
  ), 'who joins and leaves is one event each; what changes nothing is none'
);
select results_eq(
  format('select is_member from oml.workarea_member where workarea_id = %L and principal = ''ann''', :'archive'), 'values (true)', 'and one row'
);

-- A move.
select pg_temp.submitted('ann', body => 'before') as before \gset
select pg_temp.as_login('olga', 'select oml_move_workarea(''research/2026'', ''research/old'')');
select results_eq(
  format('select type, payload from oml.journal where tenant_id = %L order by seq desc limit 1', :'globex'),
  format($$ values ('workarea.moved', jsonb_build_object('workarea_id', %L, 'from', 'research/2026', 'path', 'research/old')) $$, :'area'),
  'a move says from where to where'
);
select is(pg_temp.outcome('ann', $$ select oml_submit('research/2026', 'x', 'text/plain', 'observed') $$), 'OM190', 'the old path is none now');
select pg_temp.as_login('ann', format('select artifact_id from oml_submit(%L, ''after'', ''text/plain'', ''observed'')', :'area')) as after \gset
select is(pg_temp.as_login('ann', $$ select path from oml_my_submissions(max_rows => 1) $$), 'research/old', 'the next submission has the new path');
select results_eq(
  'select path, workarea_id from oml.artifact_version order by submitted_seq',
  format($$ values ('research/2026', %1$L::uuid), ('research/old', %1$L) $$, :'area'), 'what was submitted keeps the path of its time, and the id'
);
select results_eq(
  $$ select payload ->> 'path' from oml.journal where type = 'submission.submit' order by seq $$, $$ values ('research/2026'), ('research/old') $$,
  'in the journal too'
);
select is(pg_temp.outcome('olga', 'select oml_create_workarea(''research/2026'')'), null, 'the old path is free for another');
select pg_temp.judged(:'before', 'approve');
select pg_temp.as_login('olga', format('select oml_promote(%L)', :'before'));
select is(pg_temp.as_login('ben', format('select convert_from(content, %L) from oml_fetch(%L)', 'UTF8', :'before')), 'before', 'its members read what is released in it, wherever it is now');

-- Guards: the id, and the path of a submission, cannot be changed by anybody.
select throws_ok(statement, 'OM060', null, format('%s is refused', statement))
from unnest(array[
  'update oml.workarea set workarea_id = gen_random_uuid()', 'update oml.workarea set created_seq = 1', 'delete from oml.workarea',
  'update oml.workarea_member set principal = ''eve''', 'delete from oml.workarea_member',
  'update oml.artifact_version set path = ''x''', 'update oml.artifact_version set provenance = ''imported''', 'update oml.artifact_version set author = ''eve''',
  'update oml.artifact_version set plaintext_digest = sha256('''')', 'update oml.artifact_version set dek_id = gen_random_uuid()',
  'update oml.artifact_version set state = ''promoted'', provenance = ''simulated''', 'delete from oml.artifact_version',
  'update oml.body set ciphertext = ''x''', 'delete from oml.body', 'update oml.dek set wrapped = ''x''', 'delete from oml.dek'
]) statement;
set session_replication_role = replica;
select throws_ok('update oml.artifact_version set provenance = ''imported''', 'OM060', null, 'nor under session_replication_role = replica');
reset session_replication_role;

-- Another tenant has paths of its own, and sees none of these.
select is(pg_temp.outcome('eve', $$ select oml_create_workarea('archive') $$), null, 'another tenant may have the same path');
select is(pg_temp.outcome('eve', format('select oml_add_member(%L, ''eve'')', w)), 'OM190', 'and touches none of globex''s')
from unnest(array['archive', :'archive']) w;

select is_empty($$ select * from oml_fold_check('globex') $$, 'the state is what the journal says');
select is_empty($$ select * from oml_verify_chain('globex') where fault is not null $$, 'and the chain verifies');
select * from finish();
rollback;
