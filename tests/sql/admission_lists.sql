-- Lists of workareas, artifacts and attachments: what each kind of caller sees of them.
begin;
\ir shared/refused.sql
\ir shared/submissions.sql
select * from no_plan();

select pg_temp.submitted(attachments => 2) as held \gset
select pg_temp.brought_to('approved') as approved \gset
select pg_temp.brought_to('promoted') as promoted \gset
select pg_temp.brought_to('reassigned') as moved \gset

create function pg_temp.listed(login text, statement text) returns text language plpgsql as $$
declare
  answer text;
begin
  execute format('set local session authorization %I', login);
  execute format('select string_agg(t::text, '' '' order by t::text) from (%s) t', statement) into answer;
  reset session authorization;
  return coalesce(answer, '-');
end
$$;

-- Workareas.
select is(pg_temp.listed(login, 'select path, is_member, members from oml_workareas()'), listed, format('%s sees %s', login, listed))
from (values
  ('ann', '(research/2026,t,)'), ('carl', '(archive,t,)'), ('rita', '-'),
  ('olga', '(archive,f,{carl}) (attic,f,{}) (research/2026,f,"{ann,ben,rolf}")'), ('eve', '-')
) v (login, listed);
select pg_temp.as_login('olga', $$ select oml_remove_member('research/2026', 'ben') $$);
select is(pg_temp.listed('ben', 'select path from oml_workareas()'), '-', 'who left sees it no more');
select pg_temp.as_login('olga', $$ select oml_add_member('research/2026', 'ben') $$);

-- Artifacts.
create function pg_temp.artifacts(login text, arguments text default '') returns text[] language sql as $$
  select array_agg(n order by n)
  from (values ('held', current_setting('test.held')), ('approved', current_setting('test.approved')), ('promoted', current_setting('test.promoted')), ('moved', current_setting('test.moved'))) a (n, id)
  where position(id in pg_temp.listed(login, format('select artifact_id from oml_artifacts(%s)', arguments))) > 0
$$;
select set_config('test.held', :'held', true), set_config('test.approved', :'approved', true), set_config('test.promoted', :'promoted', true), set_config('test.moved', :'moved', true);
select is(pg_temp.artifacts(login, arguments), artifacts::text[], format('of %s %s sees %s', coalesce(nullif(arguments, ''), 'all'), login, artifacts))
from (values
  ('ann', '', '{approved,held,moved,promoted}'), ('ben', '', '{promoted}'), ('carl', '', '{moved}'), ('rita', '', '{approved,held,moved,promoted}'),
  ('olga', '', '{approved,held,moved,promoted}'), ('eve', '', null),
  ('olga', $$state => 'approved'$$, '{approved}'), ('olga', $$state => 'held'$$, '{held}'), ('olga', $$workarea => 'archive'$$, '{moved}'),
  ('olga', format('workarea => %L', :'area'), '{approved,held,promoted}'), ('ben', $$workarea => 'archive'$$, null), ('ben', $$state => 'held'$$, null),
  ('olga', $$workarea => 'nowhere'$$, null), ('olga', 'max_rows => 0', null)
) v (login, arguments, artifacts);
select results_eq(
  $$ select pg_temp.listed('olga', format('select artifact_id from oml_artifacts(after_seq => %s, max_rows => 1)', seq)) from (
       select a.submitted_seq - 1 as seq from oml.artifact_version a order by a.submitted_seq) s $$,
  $$ select format('(%s)', a.artifact_id) from oml.artifact_version a order by a.submitted_seq $$,
  'a page begins after a seq'
);
select is(
  pg_temp.listed('carl', 'select version, author, provenance, media_type, path, attachments, current_state from oml_artifacts()'),
  '(1,ann,observed,text/plain,archive,0,reassigned)', 'it says where a version lies now, and where it stands'
);

-- Attachments.
select is(
  pg_temp.listed('ann', format('select artifact_version, part, name, media_type, bytes from oml_attachments(%L)', :'held')),
  (select string_agg(format('(1,%s,"%s",%s,%s)', part, name, media_type, bytes), ' ' order by part) from oml.attachment where artifact_id = :'held'),
  'the author sees the attachments'
);
select is(pg_temp.listed('ann', format('select * from oml_attachments(%L)', :'approved')), '-', 'none where there are none');
select pg_temp.refused_to(
  login, format('select * from oml_attachments(%L)', :'held'), 'OM226', format('there is no version of artifact %s that principal %L may read', :'held', login), '%', format('%s does not', login)
)
from unnest(array['ben', 'rita', 'olga', 'eve']) login;

select * from finish();
rollback;
