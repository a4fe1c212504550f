-- Which permission each verb of submissions and reviews needs: every other one, and none, is refused.
begin;
\ir shared/refused.sql
\ir shared/submissions.sql
select * from no_plan();

-- A login for each permission, in every group role: so what refuses is the membership.
create temporary table may (login text, permission text);
grant select on may to public;
insert into may select 'may_' || p, p from unnest(array['append', 'submit', 'review', 'operate', 'audit']) p;
do $$
declare
  m record;
begin
  for m in select * from may loop
    execute format('create role %I login in role oml_writer, oml_reviewer, oml_operator, oml_auditor, oml_daemon', m.login);
    perform oml_grant(m.login, 'globex', array[m.permission]);
    perform pg_temp.as_login('olga', format('select oml_add_member(''research/2026'', %L)', m.login));
  end loop;
end
$$;
select pg_temp.brought_to('held', 'simulated') as held \gset
select pg_temp.as_login('may_review', format('select count(*) from oml_review_serve(%L)', :'held'));
select pg_temp.brought_to('approved') as approved \gset
select pg_temp.brought_to('promoted') as promoted \gset
select pg_temp.brought_to('held') as other \gset

create temporary table verb (name text, call text, permissions text[]);
insert into verb values
  ('oml_submit', $$ select artifact_id from oml_submit('research/2026', 'x', 'text/plain', 'observed') $$, '{submit}'),
  ('oml_data_key', 'select artifact_id from oml_data_key()', '{submit}'),
  ('oml_my_submissions', 'select count(*) from oml_my_submissions()', '{append,submit,review,operate,audit}'),
  ('oml_fetch', format('select name from oml_fetch(%L)', :'promoted'), '{append,submit,review,operate,audit}'),
  ('oml_history', format('select seq from oml_history(%L)', :'promoted'), '{append,submit,review,operate,audit}'),
  ('oml_history', format('select seq from oml_history(%L)', :'held'), '{review,operate,audit}'),
  ('oml_review_queue', 'select count(*) from oml_review_queue()', '{review}'),
  ('oml_workareas', 'select count(*) from oml_workareas()', '{append,submit,review,operate,audit}'),
  ('oml_artifacts', 'select count(*) from oml_artifacts()', '{append,submit,review,operate,audit}'),
  ('oml_attachments', format('select count(*) from oml_attachments(%L)', :'promoted'), '{append,submit,review,operate,audit}'),
  ('oml_review_serve', format('select name from oml_review_serve(%L)', :'other'), '{review}'),
  ('oml_verdict', format('select seq from oml_verdict(%L, ''approve'')', :'held'), '{review}'),
  ('oml_verdict', format('select seq from oml_verdict(%L, ''reject'', ''x'')', :'held'), '{review}'),
  ('oml_promote', format('select seq from oml_promote(%L)', :'approved'), '{operate}'),
  ('oml_demote', format('select seq from oml_demote(%L, ''x'')', :'promoted'), '{operate}'),
  ('oml_reassign', format('select seq from oml_reassign(%L, ''archive'', ''x'')', :'promoted'), '{operate}'),
  ('oml_end_simulation', format('select seq from oml_end_simulation(%L, ''x'')', :'held'), '{operate}'),
  ('oml_create_workarea', 'select oml_create_workarea(''x'')', '{operate}'),
  ('oml_move_workarea', 'select oml_move_workarea(''archive'', ''x'')', '{operate}'),
  ('oml_add_member', 'select oml_add_member(''archive'', ''ann'')', '{operate}'),
  ('oml_remove_member', 'select oml_remove_member(''archive'', ''carl'')', '{operate}');
select is_empty(
  $$ select l.verb, l.permission from oml.lifecycle() l
     where not exists (select from verb v where v.permissions = array[l.permission] and v.name in ('oml_' || replace(l.verb, '-', '_'), case when l.event_type = 'review.verdict' then 'oml_verdict' end)) $$,
  'as the lifecycle says'
);
-- A public function for each, and none forgotten.
select set_eq(
  'select distinct name from verb',
  $$ select p.proname::text from pg_proc p where p.pronamespace = 'public'::regnamespace and p.proname ~ '^oml_'
     and p.prosrc ~ 'oml\.(caller|decide|set_member)\(' and p.proname <> 'oml_submit_sealed' $$,
  'these are all the verbs, but that of client-encrypted submissions'
);

select is(pg_temp.outcome(m.login, v.call), null, format('%s is enough for %s', m.permission, v.name))
from verb v join may m on m.permission = any (v.permissions);
select pg_temp.refused_to(
  m.login, v.call, case when v.permissions @> '{audit}' and cardinality(v.permissions) = 3 then 'OM203' else 'OM001' end,
  case when v.permissions @> '{audit}' and cardinality(v.permissions) = 3 then format('there is no artifact %s that the caller may act on', :'held')
    else format('login %s is bound to no tenant it may use', m.login) end,
  '%', format('%s is not enough for %s', m.permission, v.name)
)
from verb v join may m on m.permission <> all (v.permissions);
select is(pg_temp.outcome('may_submit', 'select artifact_id from oml_submit_sealed(''research/2026'', null, 1, null, null, 1, null, null, null, ''text/plain'', ''observed'')'), 'OM193', 'submit is enough to be looked at');
select is(pg_temp.outcome(login, 'select artifact_id from oml_submit_sealed(''research/2026'', null, 1, null, null, 1, null, null, null, ''text/plain'', ''observed'')'), 'OM001', format('%s is not', permission))
from may where permission <> 'submit';

-- Functions and operators of one's own do not stand before the catalogue's.
create schema trap;
grant usage on schema trap to public;
create function trap.spring() returns boolean language plpgsql as $$ begin raise exception 'sprung'; end $$;
create function trap.octet_length(bytea) returns int language sql as 'select trap.spring()::int';
create function trap.convert_to(text, text) returns bytea language sql as 'select trap.spring()::text::bytea';
create function trap.concat_ws(text, text, text, text, text, text, text) returns text language sql as 'select trap.spring()::text';
create function trap.uuid_send(uuid) returns bytea language sql as 'select trap.spring()::text::bytea';
create function trap.current_setting(text, boolean) returns text language sql as 'select trap.spring()::text';
create function trap.same(text, text) returns boolean language sql as 'select trap.spring()';
create operator trap.= (function = trap.same, leftarg = text, rightarg = text);
create function pg_temp.trapped(login text, call text) returns text language plpgsql as $$
declare
  before text := current_setting('search_path');
  answer text;
begin
  perform set_config('search_path', 'trap, pg_catalog, public', true);
  answer := pg_temp.outcome(login, call);
  perform set_config('search_path', before, true);
  return answer;
end
$$;
select is(pg_temp.trapped(m.login, v.call), null, format('%s minds no functions of its caller''s', v.name))
from verb v join may m on m.permission = any (v.permissions);
select is(pg_temp.trapped('ann', 'select octet_length(''x''::bytea)'), 'P0001', 'which would be found else');

-- Group roles without any membership; memberships without any group role.
select pg_temp.refused_to('stranger', call, 'OM001', 'login stranger is bound to no tenant it may use', '%An operator binds it%', format('%s by a login that is bound to nothing', name)) from verb;
create role unarmed login;
select oml_grant('unarmed', 'globex', '{append,submit,review,operate,audit}');
select is(pg_temp.outcome('unarmed', call), '42501', format('%s outside the group roles cannot be called', name)) from verb;
-- Each group role calls its own verbs.
create role a_writer login in role oml_writer;
create role a_reviewer login in role oml_reviewer;
create role an_operator login in role oml_operator;
create role an_auditor login in role oml_auditor;
create role a_daemon login in role oml_daemon;
select oml_grant(l, 'globex', '{append,submit,review,operate,audit}') from unnest(array['a_writer', 'a_reviewer', 'an_operator', 'an_auditor', 'a_daemon']) l;
select set_eq(
  $$ select l.login, v.name from unnest(array['a_writer', 'a_reviewer', 'an_operator', 'an_auditor', 'a_daemon']) l (login), verb v
     where pg_temp.outcome(l.login, v.call) is distinct from '42501' $$,
  $$ select l.login, n from (values
       ('a_writer', '{oml_submit,oml_data_key,oml_my_submissions,oml_fetch,oml_history,oml_workareas,oml_artifacts,oml_attachments}'::text[]),
       ('a_reviewer', '{oml_my_submissions,oml_fetch,oml_history,oml_workareas,oml_artifacts,oml_attachments,oml_review_queue,oml_review_serve,oml_verdict}'),
       ('an_operator', '{oml_my_submissions,oml_fetch,oml_history,oml_workareas,oml_artifacts,oml_attachments,oml_promote,oml_demote,oml_reassign,oml_end_simulation,oml_create_workarea,oml_move_workarea,oml_add_member,oml_remove_member}'),
       ('an_auditor', '{oml_my_submissions,oml_fetch,oml_history,oml_workareas,oml_artifacts,oml_attachments}')
     ) l (login, names), unnest(names) n $$,
  'each group role calls its own verbs and no other'
);

-- Another tenant's, whoever it is there. An unknown tenant is answered alike.
select pg_temp.refused_to('eve', replace(call, ')', format(', tenant => %L)', tenant)), 'OM003', format('there is no tenant %L that login eve may use', tenant), 'This login may use: initech.', format('%s in %s', name, tenant))
from (values
  ('oml_submit', $$ select oml_submit('research/2026', 'x', 'text/plain', 'observed') $$), ('oml_fetch', format('select oml_fetch(%L)', :'promoted')),
  ('oml_history', format('select oml_history(%L)', :'promoted')), ('oml_review_serve', format('select oml_review_serve(%L)', :'other')),
  ('oml_verdict', format('select oml_verdict(%L, ''approve'')', :'other')), ('oml_promote', format('select oml_promote(%L)', :'approved')),
  ('oml_demote', format('select oml_demote(%L, ''x'')', :'promoted')), ('oml_add_member', 'select oml_add_member(''archive'', ''eve'')')
) v (name, call)
cross join unnest(array['globex', 'no-such-tenant', 'provider']) tenant;
-- In its own tenant the ids of another's are nobody's.
select is(pg_temp.outcome('eve', call), code, format('%s is answered %s', call, code))
from (values
  (format('select * from oml_fetch(%L)', :'promoted'), 'OM226'), (format('select * from oml_history(%L)', :'promoted'), 'OM203'),
  (format('select * from oml_review_serve(%L)', :'other'), 'OM203'), (format('select oml_verdict(%L, ''approve'')', :'other'), 'OM203'),
  (format('select oml_promote(%L)', :'approved'), 'OM203'), (format('select oml_demote(%L, ''x'')', :'promoted'), 'OM203'),
  (format('select * from oml_data_key(%L)', :'other'), 'OM203')
) v (call, code);

-- A permission on the provider is none on a tenant.
create role chief login in role oml_writer, oml_reviewer, oml_operator, oml_auditor;
select oml_grant('chief', 'provider', '{review,operate,audit}');
select pg_temp.refused_to('chief', call, 'OM001', 'login chief is bound to no tenant it may use', '%', format('%s with permissions on the provider alone', name)) from verb;

-- A login of two tenants says which.
select oml_grant('ann', 'initech', '{submit}');
select is(pg_temp.outcome('ann', 'select count(*) from oml_my_submissions()'), 'OM002', 'of two tenants one is to be named');
select is(pg_temp.outcome('ann', 'select count(*) from oml_my_submissions(tenant => ''initech'')'), null, 'and can be');
set session authorization ann;
select oml_use('globex');
select is((select count(*) > 0 from oml_my_submissions()), true, 'oml_use says it for the transaction');
reset session authorization;
select set_config('oml.transaction', '', true);

-- Null for every argument of every verb: an answer of ours, whatever it is.
create temporary table null_call as
select p.proname::text as name, format(
  'select count(*) from %s(%s)', p.oid::regproc,
  (select string_agg(format('%I => null::%s', p.proargnames[n], format_type(t, null)), ', ') from unnest(p.proargtypes) with ordinality a (t, n))
) as call
from pg_proc p
where p.pronamespace = 'public'::regnamespace and (p.proname in (select name from verb) or p.proname = 'oml_submit_sealed');
create role everything login in role oml_writer, oml_reviewer, oml_operator, oml_auditor;
select oml_grant('everything', 'globex', '{append,submit,review,operate,audit}');
select matches(coalesce(pg_temp.outcome('everything', call), 'OM000'), '^OM', format('nulls alone for %s', name)) from null_call;

select * from finish();
rollback;
