-- What a superuser changed in the state of submissions is found, in each table of it.
begin;
set local client_min_messages = warning;
\ir shared/refused.sql
\ir shared/submissions.sql
select * from no_plan();

select pg_temp.submitted('ann', 'simulated', attachments => 1) as source \gset
select pg_temp.as_login('ann', format(
  $$ select artifact_id from oml_submit('research/2026', 'made', 'text/plain', 'simulated', derived_from => array[%L]) $$, :'source' || '/1'
)) as made \gset
select pg_temp.judged(:'source', 'approve');
select pg_temp.as_login('olga', format('select oml_promote(%L)', :'source'));
select pg_temp.as_login('olga', format('select oml_reassign(%L, ''archive'', ''done'')', :'source'));
select is_empty('select * from oml_fold_check()', 'all is well');
select set_config('test.source', :'source', true), set_config('test.made', :'made', true), set_config('test.globex', :'globex', true), set_config('test.initech', :'initech', true), set_config('test.area', :'area', true);

create function pg_temp.found_after(tampering text)
returns setof text
language plpgsql
as $$
declare
  findings text[];
  table_name text;
begin
  begin
    foreach table_name in array array['journal', 'workarea', 'workarea_member', 'artifact_version', 'attachment', 'derived_from', 'served', 'artifact_event'] loop
      execute format('alter table oml.%I disable trigger all', table_name);
    end loop;
    execute tampering;
    findings := array(
      select format('%s %s %s', replace(f.entity_type, 'oml.', ''), replace(replace(f.entity_id, current_setting('test.source'), 'source'), current_setting('test.made'), 'made'), f.difference)
        || coalesce((
          select string_agg(' ' || k, '' order by k)
          from jsonb_object_keys(f.expected) k where f.difference = 'different' and f.found -> k is distinct from f.expected -> k
        ), '')
      from oml_fold_check() f
    );
    raise exception using errcode = 'ZZ000';
  exception when sqlstate 'ZZ000' then
    return query select unnest(findings);
  end;
end
$$;
create temporary table tampering (what text, findings text[]);
insert into tampering
select format('update oml.artifact_version set %s where artifact_id = current_setting(''test.made'')::uuid', change), array['artifact_version made/1 different ' || split_part(change, ' ', 1)]
from unnest(array[
  'workarea_id = gen_random_uuid()', 'path = ''archive''', 'author = ''ben''', 'provenance = ''observed''', 'media_type = ''text/html''', 'bytes = 5', 'attachments = 1',
  'plaintext_digest = sha256('''')', 'ciphertext_digest = sha256('''')', 'dek_id = gen_random_uuid()', 'submitted_seq = submitted_seq + 1',
  'submitted_at = submitted_at + interval ''1 microsecond''', 'state = ''promoted''', 'state_seq = state_seq - 1', 'reviewer = ''rita''', 'reason = ''''',
  'version = 2'
]) change;
update tampering set findings = array['artifact_version made/1 missing', 'artifact_version made/2 extra'] where what like '%version = 2%';
insert into tampering
select format('update oml.attachment set %s', change), array['attachment source/1/1 different ' || split_part(change, ' ', 1)]
from unnest(array['name = ''x''', 'media_type = ''text/html''', 'bytes = 5', 'plaintext_digest = sha256('''')', 'ciphertext_digest = sha256('''')', 'attached_seq = 1']) change;
insert into tampering
select format('update oml.workarea set %s where workarea_id = current_setting(''test.area'')::uuid', change), array[format('workarea %s different %s', :'area', split_part(change, ' ', 1))]
from unnest(array['path = ''x''', 'created_seq = 1', 'last_seq = 99']) change;
insert into tampering values
  ('select 1', '{}'),
  ('update oml.workarea_member set is_member = false where principal = ''ann''', array[format('workarea_member %s/ann different is_member', :'area')]),
  ('update oml.workarea_member set last_seq = 99 where principal = ''ann''', array[format('workarea_member %s/ann different last_seq', :'area')]),
  ('update oml.workarea_member set principal = ''eve'' where principal = ''ann''', array[format('workarea_member %s/ann missing', :'area'), format('workarea_member %s/eve extra', :'area')]),
  ('delete from oml.workarea_member where principal = ''ann''', array[format('workarea_member %s/ann missing', :'area')]),
  ('update oml.derived_from set source_version = 2', array['derived_from made/1/source/1 missing', 'derived_from made/1/source/2 extra']),
  ('delete from oml.derived_from', array['derived_from made/1/source/1 missing']),
  ('update oml.served set served_seq = 1 where part = 1', array['served source/1/1/rita different served_seq']),
  ('update oml.served set principal = ''rolf'' where part = 1', array['served source/1/1/rita missing', 'served source/1/1/rolf extra']),
  ('delete from oml.served where part = 0', array['served source/1/0/rita missing']),
  ('delete from oml.attachment', array['attachment source/1/1 missing']),
  ('delete from oml.artifact_version where artifact_id = current_setting(''test.made'')::uuid', array['artifact_version made/1 missing']),
  ('delete from oml.workarea where path = ''archive''', array[format('workarea %s missing', :'archive')]),
  ('insert into oml.artifact_version select tenant_id, artifact_id, 2, workarea_id, path, author, provenance, media_type, bytes, attachments, plaintext_digest, ciphertext_digest, dek_id, submitted_seq, submitted_at, state, state_seq from oml.artifact_version where artifact_id = current_setting(''test.made'')::uuid',
    array['artifact_version made/2 extra']),
  ('insert into oml.workarea_member values (current_setting(''test.globex'')::uuid, current_setting(''test.area'')::uuid, ''eve'', true, 9)', array[format('workarea_member %s/eve extra', :'area')]),
  ('update oml.artifact_version set tenant_id = current_setting(''test.initech'')::uuid where artifact_id = current_setting(''test.made'')::uuid', array['artifact_version made/1 missing', 'artifact_version made/1 extra']);
insert into tampering
select 'delete from oml.artifact_event where artifact_id = current_setting(''test.made'')::uuid', array_agg(format('artifact_event made/%s missing', seq)) from oml.artifact_event where artifact_id = :'made';
insert into tampering
select format('insert into oml.artifact_event values (current_setting(''test.globex'')::uuid, current_setting(''test.made'')::uuid, 1)'), array['artifact_event made/1 extra'];
-- Steps that the lifecycle does not have, in the journal itself.
select max(seq) filter (where type = 'artifact.promoted') as promoted, max(seq) filter (where type = 'review.verdict') as judged,
  max(seq) filter (where type = 'review.serve') as served
from oml.journal \gset
select submitted_seq as made_seq from oml.artifact_version where artifact_id = current_setting('test.made')::uuid \gset
insert into tampering
select format('update oml.journal set payload = payload || %L where type = ''artifact.promoted''', jsonb_build_object(k, v)), array[format('lifecycle source/1/%s not allowed', j.seq)]
from oml.journal j, (values ('from', 'held'), ('from', 'rejected'), ('from', 'promoted')) c (k, v)
where j.type = 'artifact.promoted';

select results_eq(
  format('select * from pg_temp.found_after(%L)', what), format('select unnest(%L::text[])', findings), format('%s is found', what)
)
from tampering;
select set_eq(
  format('select * from pg_temp.found_after(%L)', what), format('select unnest(%L::text[])', findings), format('%s is found', what)
)
from (values
  ('a verdict that leads elsewhere',
    $$ update oml.journal set payload = payload || '{"to": "rejected"}' where type = 'review.verdict' $$,
    array[format('lifecycle source/1/%s not allowed', :promoted)]),
  ('a promotion of what was never approved',
    $$ delete from oml.journal where type = 'review.verdict' $$,
    array[format('lifecycle source/1/%s not allowed', :promoted)]
      || array[format('artifact_event source/%s extra', :judged)] || array['artifact_version source/1 different reviewer']),
  ('a verdict under another type',
    $$ update oml.journal set type = 'artifact.promoted' where type = 'review.verdict' $$,
    array[format('lifecycle source/1/%s not allowed', :judged)] || array['artifact_version source/1 different reviewer']),
  ('an approval by whom only submit was asked of', $$ update oml.journal set "authorization" = 'membership:submit' where type = 'review.verdict' $$, array[format('lifecycle source/1/%s not allowed', :judged)]),
  ('another provenance in the event',
    $$ update oml.journal set payload = payload || '{"provenance": "observed"}' where type = 'submission.submit' and artifact_id = current_setting('test.made')::uuid $$,
    array['artifact_version made/1 different provenance', format('lifecycle made/1/%s not allowed', :made_seq)]),
  ('a serve that is gone', $$ delete from oml.journal where type = 'review.serve' $$,
    array['served source/1/0/rita extra', 'served source/1/1/rita extra'] || array[format('artifact_event source/%s extra', :served), format('lifecycle source/1/%s not allowed', :judged)]),
  ('a verdict by the author', $$ update oml.journal set principal = 'ann' where type in ('review.verdict', 'review.serve') $$,
    array[format('lifecycle source/1/%s not allowed', :judged), 'artifact_version source/1 different reviewer', 'served source/1/0/rita extra', 'served source/1/1/rita extra', 'served source/1/0/ann missing', 'served source/1/1/ann missing'])
) v (name, what, findings);
select is_empty('select * from oml_fold_check()', 'and after all of it is undone nothing is');

-- A superuser who inserts events, in any order, has their state folded too.
select max(seq) as head from oml.journal where tenant_id = :'globex' \gset
insert into oml.journal
select (jsonb_populate_record(j, jsonb_build_object('seq', j.seq + :head, 'event_id', gen_random_uuid(), 'artifact_id', '00000000-0000-0000-0000-000000000001'))).*
from oml.journal j where j.tenant_id = :'globex' and j.artifact_id = :'source' order by j.seq desc;
select results_eq(
  'select artifact_id, version, state, attachments, reviewer from oml.artifact_version where artifact_id = ''00000000-0000-0000-0000-000000000001''',
  format('select ''00000000-0000-0000-0000-000000000001''::uuid, version, state, attachments, reviewer from oml.artifact_version where artifact_id = %L', :'source'),
  'what is inserted past the verbs is folded'
);
select is_empty('select * from oml_fold_check()', 'as the check says');

select * from finish();
rollback;
