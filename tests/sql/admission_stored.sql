-- A verb whose rows somebody else's trigger keeps from being stored is refused, whichever of them it is: nothing
-- is journalled without the state, the key and the bytes that go with it.
begin;
\ir shared/refused.sql
\ir shared/submissions.sql
\ir shared/sealed.sql
select * from no_plan();

-- Something for each verb to work on.
select pg_temp.submitted('ann') as source \gset
select pg_temp.submitted('ann') as other_source \gset
select pg_temp.submitted('ann', attachments => 2) as held \gset
select pg_temp.submitted('ann', attachments => 2) as served \gset
select pg_temp.as_login('rita', format('select count(*) from oml_review_serve(%L)', :'served'));
select pg_temp.brought_to('approved') as approved \gset
select pg_temp.brought_to('promoted') as promoted \gset
select pg_temp.submitted('ann', 'simulated') as simulated \gset
select pg_temp.as_login('olga', 'select oml_remove_member(''research/2026'', ''ben'')');

create temporary table act (name text, login text, call text);
insert into act values
  ('submit', 'ann', format('select oml_submit(''research/2026'', ''x'', ''text/plain'', ''derived'', derived_from => array[%L, %L])', :'source' || '/1', :'other_source' || '/1')),
  ('submit more', 'ann', format(
    $$ select oml_submit('research/2026', 'x', 'text/plain', 'derived', artifact => %1$L, derived_from => array[%1$L || '/1', %2$L],
         attachment_names => '{a,b}', attachment_types => '{text/plain,text/plain}', attachments => array['a', 'b']::bytea[]) $$, :'source', :'other_source' || '/1')),
  ('submit sealed', 'ann', format('select oml_submit_sealed(workarea => %L, provenance => %L, %s)', 'research/2026', 'observed', pg_temp.sealed(:'seed', 'x'))),
  ('submit more sealed', 'ann', format('select oml_submit_sealed(workarea => %L, provenance => %L, %s)', 'research/2026', 'observed', pg_temp.sealed(:'seed', 'x', 'a', 'b'))),
  ('serve', 'rita', format('select count(*) from oml_review_serve(%L)', :'held')),
  ('serve again', 'rita', format('select count(*) from oml_review_serve(%L)', :'served')),
  ('approve', 'rita', format('select oml_verdict(%L, ''approve'')', :'served')),
  ('reject', 'rita', format('select oml_verdict(%L, ''reject'', ''x'')', :'served')),
  ('promote', 'olga', format('select oml_promote(%L)', :'approved')),
  ('demote', 'olga', format('select oml_demote(%L, ''x'')', :'promoted')),
  ('reassign', 'olga', format('select oml_reassign(%L, ''archive'', ''x'')', :'promoted')),
  ('end simulation', 'olga', format('select oml_end_simulation(%L, ''x'')', :'simulated')),
  ('create workarea', 'olga', 'select oml_create_workarea(''fresh'')'),
  ('move workarea', 'olga', 'select oml_move_workarea(''archive'', ''moved'')'),
  ('add member', 'olga', 'select oml_add_member(''archive'', ''ben'')'),
  ('add member again', 'olga', 'select oml_add_member(''research/2026'', ''ben'')'),
  ('remove member', 'olga', 'select oml_remove_member(''research/2026'', ''ann'')');
-- A superuser who inserts events past the verbs has their state folded too.
select pg_temp.as_login('ann', format(
  $$ select artifact_id from oml_submit('research/2026', 'x', 'text/plain', 'derived', derived_from => array[%L, %L],
       attachment_names => '{a,b}', attachment_types => '{text/plain,text/plain}', attachments => array['a', 'b']::bytea[]) $$, :'source' || '/1', :'other_source' || '/1'
)) as copied \gset
insert into act values ('insert events', session_user, format(
  $$ insert into oml.journal
     select (jsonb_populate_record(j, jsonb_build_object('seq', j.seq + 1000, 'event_id', gen_random_uuid(), 'artifact_id', '00000000-0000-0000-0000-000000000001'))).*
     from oml.journal j where j.tenant_id = %L and j.artifact_id = %L order by j.seq returning seq $$, :'globex', :'copied'
));

-- Which rows are swallowed: of a table, before an insert or an update, and all of them or the last ones alone.
create temporary table swallowed (table_name text, event text, condition text, acts text[]);
insert into swallowed values
  ('journal', 'insert', 'true', '{submit,submit more,submit sealed,submit more sealed,serve,approve,promote,create workarea,add member}'),
  ('journal', 'insert', 'new.type = ''submission.attach''', '{submit more,submit more sealed}'),
  ('outbox', 'insert', 'true', '{submit,submit more,submit sealed,submit more sealed,serve,approve,promote,create workarea,add member}'),
  ('outbox', 'insert', 'new.target = ''bodies''', '{promote}'),
  ('body', 'insert', 'true', '{submit,submit more,submit sealed,submit more sealed}'),
  ('body', 'insert', 'new.part > 1', '{submit more,submit more sealed}'),
  ('dek', 'insert', 'true', '{submit,submit more,submit sealed,submit more sealed}'),
  ('artifact_version', 'insert', 'true', '{submit,submit more,submit sealed,submit more sealed,insert events}'),
  ('artifact_version', 'update', 'true', '{approve,reject,promote,demote,reassign,end simulation}'),
  ('attachment', 'insert', 'true', '{submit more,submit more sealed,insert events}'),
  ('attachment', 'insert', 'new.part > 1', '{submit more,submit more sealed,insert events}'),
  ('artifact_event', 'insert', 'true', '{insert events,submit,submit more,submit sealed,submit more sealed,serve,serve again,approve,reject,promote,demote,reassign,end simulation}'),
  ('artifact_event', 'insert', 'new.seq > (select max(v.submitted_seq) from oml.artifact_version v) + 1', '{submit more,submit more sealed}'),
  ('served', 'insert', 'true', '{serve,serve again}'),
  ('served', 'insert', 'new.part > 1', '{serve,serve again}'),
  ('served', 'update', 'true', '{serve again}'),
  ('served', 'update', 'new.part > 1', '{serve again}'),
  ('derived_from', 'insert', 'true', '{submit,submit more,insert events}'),
  ('derived_from', 'insert', format('new.source_artifact_id = %L', :'other_source'), '{submit,submit more,insert events}'),
  ('writer_envelope', 'insert', 'true', '{submit sealed,submit more sealed}'),
  ('workarea', 'insert', 'true', '{create workarea}'),
  ('workarea', 'update', 'true', '{move workarea}'),
  ('workarea_member', 'insert', 'true', '{add member,add member again,remove member}'),
  ('workarea_member', 'update', 'true', '{add member again,remove member}');

create function pg_temp.swallow() returns trigger language plpgsql as $$
declare
  is_meant boolean;
begin
  execute format('select %s from (select ($1).*) new', tg_argv[0]) into is_meant using new;
  if is_meant then
    return null;
  end if;
  return new;
end
$$;
-- What the tables hold. Numbers that were drawn from the outbox's sequence are no rows.
create function pg_temp.rows_stored() returns text language sql as $$ select regexp_replace(pg_temp.stored(), 'outbox_seq.*', '') $$;
create function pg_temp.kept_out(table_name text, event text, condition text, act act) returns setof text language plpgsql as $$
declare
  before text := pg_temp.rows_stored();
  what text := format('%s, with rows of oml.%s swallowed before %s where %s', act.name, table_name, event, condition);
  refusal pg_temp.refusal;
  has_fired boolean;
  after text;
begin
  begin
    execute format('create trigger swallow before %s on oml.%I for each row execute function pg_temp.swallow(%L)', event, table_name, condition);
    execute format('set local session authorization %I', act.login);
    refusal := pg_temp.refusal_of(act.call);
    reset session authorization;
    after := pg_temp.rows_stored();
    raise exception using errcode = 'ZZ000';
  exception when sqlstate 'ZZ000' then
    null;
  end;
  return next is(refusal.sqlstate || ': ' || refusal.message, 'OM043: what was appended was not stored whole', what || ', is refused');
  return next is(after, before, what || ', and nothing is stored');
end
$$;

select is(pg_temp.outcome(login, call), null, format('%s is done else', name)) from act;
select set_eq('select unnest(acts) from swallowed', 'select name from act', 'each of them is tried');
select set_eq(
  'select table_name from swallowed',
  $$ values ('journal'), ('outbox'), ('workarea'), ('workarea_member'), ('artifact_version'), ('attachment'), ('derived_from'), ('served'), ('artifact_event'), ('dek'), ('body'), ('writer_envelope') $$,
  'with every table of submissions'
);
select pg_temp.kept_out(s.table_name, s.event, s.condition, a) from swallowed s join act a on a.name = any (s.acts);

select is_empty($$ select * from oml_fold_check('globex') $$, 'the state is what the journal says');
select results_eq($$ select ok from oml_verify_chain('globex') $$, 'values (true)', 'and the chain verifies');
select * from finish();
rollback;
