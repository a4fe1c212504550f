-- Submissions: from the author's hands through review to release, and what is refused on the way.
begin;
select * from no_plan();

create role ann login in role oml_writer;
create role ben login in role oml_writer;
create role rita login in role oml_reviewer;
create role rolf login in role oml_reviewer, oml_writer;
create role olga login in role oml_operator;
create role eve login in role oml_writer, oml_reviewer;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_grant('ann', 'globex', '{submit}');
select oml_grant('ben', 'globex', '{submit}');
select oml_grant('rita', 'globex', '{review}');
select oml_grant('rolf', 'globex', '{review,submit}');
select oml_grant('olga', 'globex', '{operate}');
select oml_grant('eve', 'initech', '{submit,review}');

set session authorization olga;
select oml_create_workarea('research/2026') as area \gset
select oml_create_workarea('archive') as archive \gset
select oml_add_member('research/2026', 'ann');
select oml_add_member(:'area', 'ben');
select oml_add_member('research/2026', 'rolf');
reset session authorization;

set session authorization ann;
select * from oml_submit('research/2026', 'The canary sings.', 'text/plain', 'observed',
  attachment_names => '{notes.md}', attachment_types => '{text/markdown}', attachments => array['# Notes'::bytea]) \gset sub_
reset session authorization;
select is(:sub_version, 1, 'the first submission makes version 1');
select results_eq(
  format('select type, artifact_version, plaintext_digest from oml.journal where artifact_id = %L order by seq', :'sub_artifact_id'),
  $$ values ('submission.submit', 1::bigint, sha256('The canary sings.')), ('submission.attach', 1, sha256('# Notes')) $$,
  'its events have the digests'
);
select is_empty($$ select * from oml_fold_check('globex') $$, 'the state is what the journal says');
select is_empty($$ select * from oml_verify_chain('globex') where fault is not null $$, 'and the chain verifies');
set session authorization ann;
select is(convert_from(content, 'UTF8'), 'The canary sings.', 'the author reads it') from oml_fetch(:'sub_artifact_id');
select is(state, 'held', 'it is held') from oml_my_submissions();
reset session authorization;
set session authorization ben;
select throws_ok(format('select * from oml_fetch(%L)', :'sub_artifact_id'), 'OM226', null, 'a colleague does not read what is held');
reset session authorization;
set session authorization rita;
select is((select count(*) from oml_review_queue()), 1::bigint, 'it waits for review');
select throws_ok(format('select oml_verdict(%L, %L)', :'sub_artifact_id', 'approve'), 'OM221', null, 'no verdict without serve');
select results_eq(
  format('select part, content from oml_review_serve(%L)', :'sub_artifact_id'),
  $$ values (0, 'The canary sings.'::bytea), (1, '# Notes') $$, 'it is served with its attachment'
);
select lives_ok(format('select oml_verdict(%L, %L, %L)', :'sub_artifact_id', 'approve', 'sound'), 'and approved');
select throws_ok(format('select oml_verdict(%L, %L)', :'sub_artifact_id', 'approve'), 'OM216', null, 'once');
reset session authorization;
set session authorization olga;
select lives_ok(format('select oml_promote(%L)', :'sub_artifact_id'), 'and promoted');
reset session authorization;
set session authorization ben;
select is(convert_from(content, 'UTF8'), 'The canary sings.', 'now a colleague reads it') from oml_fetch(:'sub_artifact_id');
select is(convert_from(content, 'UTF8'), '# Notes', 'and its attachment') from oml_fetch(:'sub_artifact_id', attachment => 'notes.md');
reset session authorization;
select is_empty($$ select * from oml_fold_check('globex') $$, 'the state is what the journal says');
select results_eq(format('select target from oml.outbox o join oml.journal j on j.tenant_id = o.tenant_id and j.seq = o.chain_seq where j.artifact_id = %L and target <> %L order by o.seq', :'sub_artifact_id', 'bronze.events'),
  $$ values ('silver.claims'), ('silver.attachments'), ('bodies') $$, 'promotion alone queues content');
select * from finish();
rollback;
