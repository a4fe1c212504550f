-- Who reads what: bodies, histories and where one's own work stands.
begin;
\ir shared/refused.sql
\ir shared/submissions.sql
select * from no_plan();

do $$
begin
  perform oml_grant('stranger', 'globex', '{audit}');
end
$$;
create role dora login in role oml_writer;
select oml_grant('dora', 'globex', '{append}');
select pg_temp.as_login('olga', 'select oml_add_member(''archive'', ''dora'')');

-- State by state: the author always; members of the workarea while it is released there; nobody else.
create function pg_temp.readers(artifact uuid) returns text[] language sql as $$
  select array_agg(login order by login)
  from unnest(array['ann', 'ben', 'carl', 'dora', 'rita', 'rolf', 'olga', 'eve', 'stranger']) login
  where pg_temp.outcome(login, format('select content from oml_fetch(%L)', artifact)) is null
$$;
select is(pg_temp.readers(pg_temp.brought_to(state, 'simulated')), readers::text[], format('what is %s is read by %s', state, readers))
from (values
  ('held', '{ann}'), ('approved', '{ann,rita}'), ('rejected', '{ann}'), ('promoted', '{ann,ben,rolf}'), ('demoted', '{ann}'),
  ('reassigned', '{ann,carl,dora}'), ('simulation-ended', '{ann}')
) v (state, readers);

-- Refusals are alike, whatever is the reason.
select pg_temp.brought_to('held') as held \gset
select pg_temp.refused_to(
  login, format('select * from oml_fetch(%L%s)', artifact, version), 'OM226', format('there is no version of artifact %s that principal %L may read', coalesce(artifact, 'null'), login),
  '%members of its workarea read a version while it is released%', format('%s fetches nothing of %s%s', login, coalesce(artifact, 'null'), version)
)
from unnest(array['ben', 'rita', 'olga', 'dora', 'stranger', 'eve']) login
cross join unnest(array[:'held', '00000000-0000-0000-0000-000000000000', null]) artifact
cross join unnest(array['', ', 1', ', 2']) version;
select pg_temp.refused_to('ann', format('select * from oml_fetch(%L, %s)', :'held', version), 'OM226', format('there is no version of artifact %s that principal ''ann'' may read', :'held'), '%', format('there is no version %s', version))
from unnest(array[0, 2, -1]) version;

-- What comes.
select pg_temp.brought_to('promoted') as artifact \gset
select results_eq(
  format('select pg_temp.as_login(%L, %L)', 'ben', format('select f::text from oml_fetch(%L) f', :'artifact')),
  $$ select row(1, 'promoted', 'observed', '', 'text/plain', 'A note.'::bytea, sha256('A note.'))::text $$, 'the body with what it is'
);
select pg_temp.submitted(attachments => 3, artifact => :'artifact', body => 'newer');
select is(pg_temp.as_login('ben', format('select artifact_version from oml_fetch(%L)', :'artifact')), '1', 'the newest that one may read');
select is(pg_temp.as_login('ann', format('select artifact_version from oml_fetch(%L)', :'artifact')), '2', 'which for its author is the newest');
select is(pg_temp.as_login('ann', format('select convert_from(content, ''UTF8'') from oml_fetch(%L, attachment => %L)', :'artifact', 'file ' || n)), 'attached ' || n, format('attachment %s', n))
from generate_series(1, 3) n;
select is(pg_temp.as_login('ann', format('select convert_from(content, ''UTF8'') from oml_fetch(%L, attachment => %s)', :'artifact', body)), 'newer', format('the body is the part named %s', body))
from unnest(array['''''', 'null']) body;
select pg_temp.refused_to(
  'ann', format('select * from oml_fetch(%L, attachment => %L)', :'artifact', name), 'OM224', format('%s/2 has no attachment %L', :'artifact', name), '%returns the body.', format('there is no attachment %L', name)
)
from unnest(array['file 4', 'File 1', '1']) name;
select is(pg_temp.outcome('ben', format('select * from oml_fetch(%L, attachment => ''file 1'')', :'artifact')), 'OM224', 'nor one of an older version');

-- A reviewer is served what is held, and then reads it until it is judged and released, or rejected.
select is(pg_temp.as_login('rita', format('select convert_from(content, ''UTF8'') from oml_review_serve(%L)', :'artifact')), 'newer', 'a reviewer is served');
select is(pg_temp.as_login('rita', format('select convert_from(content, ''UTF8'') from oml_fetch(%L)', :'artifact')), 'newer', 'and fetches what it was served');
select is(pg_temp.outcome('rita', format('select * from oml_fetch(%L, 1)', :'artifact')), 'OM226', 'and no other version');
select is(pg_temp.outcome('rolf', format('select * from oml_review_serve(%L)', :'artifact')), null, 'another reviewer was not served yet');

-- Who left reads its own still, and nothing else.
select pg_temp.as_login('olga', 'select oml_remove_member(''research/2026'', ''ben''), oml_remove_member(''research/2026'', ''ann'')');
select is(pg_temp.outcome('ben', format('select * from oml_fetch(%L)', :'artifact')), 'OM226', 'who left reads no more of what is released');
select is(pg_temp.outcome('ann', format('select * from oml_fetch(%L)', :'artifact')), null, 'but what is one''s own');
select pg_temp.as_login('olga', 'select oml_add_member(''research/2026'', ''ben'')');
select is(pg_temp.outcome('ben', format('select * from oml_fetch(%L)', :'artifact')), null, 'until one comes back');
select oml_revoke('ann', 'globex');
select is(pg_temp.outcome('ann', format('select * from oml_fetch(%L)', :'artifact')), 'OM001', 'who may do nothing in the tenant reads nothing at all');
select oml_grant('ann', 'globex', '{submit}');
select pg_temp.as_login('olga', 'select oml_add_member(''research/2026'', ''ann'')');

-- One's own work.
select is(pg_temp.as_login('ann', 'select count(*) from oml_my_submissions()'), (select count(*) from oml.artifact_version where author = 'ann')::text, 'all of one''s own');
select is(pg_temp.as_login('ben', 'select count(*) from oml_my_submissions()'), '0', 'and no other''s');
select is(pg_temp.as_login('eve', 'select count(*) from oml_my_submissions()'), '0', 'nor another tenant''s');
select is(
  pg_temp.as_login('ann', format('select (artifact_id, version, state, reviewer, reason, bytes, attachments, path, provenance, media_type)::text from oml_my_submissions(%L) order by version limit 1', :'artifact')),
  row(:'artifact', 1, 'promoted', 'rita', null, 7, 0, 'research/2026', 'observed', 'text/plain')::text, 'with its state and who judged it'
);
select pg_temp.brought_to('rejected') as rejected \gset
select is(pg_temp.as_login('ann', format('select (state, reviewer, reason)::text from oml_my_submissions(%L)', :'rejected')), row('rejected', 'rita', 'read it')::text, 'and why');
select is(pg_temp.as_login('ann', format('select count(*) from oml_my_submissions(max_rows => %s)', n)), n::text, format('a page of %s', n)) from unnest(array[0, 1, 3]) n;
select is(
  pg_temp.as_login('ann', 'select count(*) from oml_my_submissions(before_seq => (select min(submitted_seq) from oml_my_submissions()))'), '0', 'before the first there is nothing'
);

-- History.
create function pg_temp.historians(artifact uuid) returns text[] language sql as $$
  select array_agg(login order by login)
  from unnest(array['ann', 'ben', 'carl', 'dora', 'rita', 'rolf', 'olga', 'eve', 'stranger']) login
  where pg_temp.outcome(login, format('select * from oml_history(%L)', artifact)) is null
$$;
select is(pg_temp.historians(:'held'), '{ann,olga,rita,rolf,stranger}'::text[], 'what is held is known to its author, and to who reviews, operates and audits');
select is(pg_temp.historians(:'artifact'), '{ann,ben,olga,rita,rolf,stranger}'::text[], 'what is released to its readers too');
select is(pg_temp.outcome('ben', format('select * from oml_history(%L)', artifact)), 'OM203', format('there is none of %s', coalesce(artifact, 'null')))
from unnest(array['00000000-0000-0000-0000-000000000000', null, :'held']) artifact;
select results_eq(
  format('select pg_temp.as_login(%L, %L)', 'olga', format('select array_agg((type, version, principal, from_state, to_state, reason)::text order by seq) from oml_history(%L)', :'rejected')),
  $$ select array[
       row('submission.submit', 1, 'ann', null, 'held', null)::text, row('review.serve', 1, 'rita', null, null, null)::text,
       row('review.verdict', 1, 'rita', 'held', 'rejected', 'read it')::text]::text $$, 'every event in its order'
);
select is(pg_temp.as_login('olga', format('select count(*) from oml_history(%L, max_rows => %s)', :'rejected', n)), n::text, format('a page of %s', n)) from unnest(array[0, 1, 3]) n;
select is(pg_temp.as_login('olga', format('select count(*) from oml_history(%1$L, after_seq => (select max(seq) from oml_history(%1$L)))', :'rejected')), '0', 'after the last there is nothing');

-- Of the versions that one may read: a released one opens no view of those that are not.
select pg_temp.submitted(artifact => :'artifact', body => 'newest', attachments => 1);
create function pg_temp.versions_told(login text, artifact uuid) returns text language sql as $$
  select pg_temp.as_login(login, format('select array_agg(version || %L || type order by seq)::text from oml_history(%L)', ' ', artifact))
$$;
select is(
  pg_temp.versions_told(login, :'artifact'), array(
    select j.artifact_version || ' ' || j.type from oml.journal j where j.artifact_id = :'artifact' and j.artifact_version = any (versions) order by j.seq
  )::text, format('%s is told of the versions %s', login, versions)
)
from (values ('ben', '{1}'::bigint[]), ('rolf', '{1,2,3}'), ('ann', '{1,2,3}'), ('rita', '{1,2,3}'), ('olga', '{1,2,3}'), ('stranger', '{1,2,3}')) v (login, versions);
select isnt(pg_temp.versions_told('ben', :'artifact'), null, 'which is something');
select ok(exists (select from oml.journal j where j.artifact_id = :'artifact' and j.artifact_version = version and j.type in ('submission.attach', 'review.serve')), format('there is more about version %s', version))
from unnest(array[2, 3]) version;

-- What is set before a call opens nothing.
set local oml.tenant_id = :'globex';
select is(pg_temp.outcome('eve', format('select * from oml_fetch(%L)', :'artifact')), 'OM226', 'oml.tenant_id opens no other tenant');
select set_config('oml.tenant', 'globex', true), set_config('oml.principal', 'ann', true), set_config('oml.transaction', '1', true);
select is(pg_temp.outcome('eve', format('select * from oml_fetch(%L)', :'artifact')), 'OM226', 'nor does what only oml_use sets');
select is(pg_temp.outcome('ben', format('select * from oml_fetch(%L)', :'held')), 'OM226', 'nor another''s work');
select is(pg_temp.as_login('ben', 'select count(*) from oml_my_submissions()'), '0', 'nor another''s list');

select * from finish();
rollback;
