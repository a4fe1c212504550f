-- Every state and every verb: what oml.lifecycle() allows works and nothing else does.
begin;
\ir shared/refused.sql
\ir shared/submissions.sql
select * from no_plan();

-- The table itself. What it must never allow, whatever else comes into it.
select set_eq(
  'select from_state from oml.lifecycle() where from_state is not null union select to_state from oml.lifecycle()',
  $$ values ('held'), ('approved'), ('rejected'), ('promoted'), ('demoted'), ('reassigned'), ('simulation-ended') $$, 'these are the states'
);
select is_empty(
  $$ select * from oml.lifecycle() where to_state = 'promoted' and (from_state <> 'approved' or permission <> 'operate') $$,
  'nothing but an approved version is promoted'
);
select is_empty(
  $$ select * from oml.lifecycle() where to_state in ('approved', 'rejected') and (from_state <> 'held' or permission <> 'review' or event_type <> 'review.verdict') $$,
  'nothing but a verdict on a held version approves or rejects'
);
select is_empty(
  $$ select * from oml.lifecycle() where from_state in ('rejected', 'demoted', 'simulation-ended') or to_state is null $$,
  'nothing leaves rejected, demoted and simulation-ended'
);
select results_eq(
  'select verb, to_state from oml.lifecycle() where from_state is null', $$ values ('submit', 'held') $$, 'everything begins with held'
);
select is_empty(
  $$ select * from oml.lifecycle() where simulated_only <> (verb = 'end-simulation') $$, 'one verb is for what is simulated'
);
select is_empty(
  'select verb, from_state from oml.lifecycle() group by 1, 2 having count(*) > 1', 'a verb leads from a state to one other'
);
select is_empty(
  'select verb from oml.lifecycle() group by verb having count(distinct permission) > 1 or count(distinct event_type) > 1',
  'a verb has one permission and one event type'
);
select is_empty(
  'select l.event_type from oml.lifecycle() l where not exists (select from oml.event_type t where t.type = l.event_type and t.reserved)',
  'whose types are the deployment''s own'
);

-- Cell by cell.
create temporary table verb (verb text, login text, call text);
insert into verb values
  ('approve', 'rita', 'select seq from oml_verdict(%L, ''approve'', ''x'')'),
  ('reject', 'rita', 'select seq from oml_verdict(%L, ''reject'', ''x'')'),
  ('promote', 'olga', 'select seq from oml_promote(%L)'),
  ('demote', 'olga', 'select seq from oml_demote(%L, ''x'')'),
  ('reassign', 'olga', 'select seq from oml_reassign(%L, ''attic'', ''x'')'),
  ('end-simulation', 'olga', 'select seq from oml_end_simulation(%L, ''x'')');
select set_eq(
  'select verb from verb union all values (''submit'')', 'select verb from oml.lifecycle()', 'these are all the verbs'
);

create function pg_temp.tried(provenance text, state text, verb text, login text, call text)
returns setof text
language plpgsql
as $$
declare
  artifact uuid := pg_temp.brought_to(state, provenance);
  cell text := format('%s of what is %s and %s', verb, state, provenance);
  step record;
  code text;
  message text;
  seq bigint;
begin
  return next is((select v.state from oml.artifact_version v where v.artifact_id = artifact), state, cell || ': it is there');
  if state = 'held' and verb in ('approve', 'reject') then
    perform pg_temp.as_login('rita', format('select count(*) from oml_review_serve(%L)', artifact));
  end if;
  select l.* into step from oml.lifecycle() l
  where l.verb = tried.verb and l.from_state = tried.state and (not l.simulated_only or provenance = 'simulated');
  if found then
    seq := pg_temp.as_login(login, format(call, artifact));
    return next is((select v.state from oml.artifact_version v where v.artifact_id = artifact), step.to_state, cell || ' works');
    return next results_eq(
      format(
        $q$ select j.type, j.principal, j."authorization", j.payload ->> 'verb', j.payload ->> 'from', j.payload ->> 'to', j.artifact_version
            from oml.journal j where j.artifact_id = %L and j.seq = %s $q$, artifact, seq
      ),
      format('values (%L, %L, %L, %L, %L, %L, 1::bigint)', step.event_type, login, 'membership:' || step.permission, verb, state, step.to_state),
      cell || ' says so in one event'
    );
    return next is(
      (select v.state_seq from oml.artifact_version v where v.artifact_id = artifact), seq, cell || ', and the state says which'
    );
  else
    if verb in ('approve', 'reject') and state not in ('held', 'simulation-ended') then
      code := 'OM216';
      message := format('principal ''rita'' has given its verdict on %s/1 already', artifact);
    elsif verb = 'promote' and state = 'rejected' then
      code := 'OM217';
      message := format('%s/1 was rejected and cannot be promoted', artifact);
    elsif verb = 'end-simulation' and provenance <> 'simulated' then
      code := 'OM218';
      message := format('%s/1 is %s, and no simulation made it', artifact, provenance);
    else
      code := 'OM219';
      message := format('%s/1 is %s: %s is not possible', artifact, state, verb);
    end if;
    return query select * from pg_temp.refused_to(login, format(call, artifact), code, message, '%', cell || ' is refused');
  end if;
end
$$;
select pg_temp.tried(p.provenance, s.state, v.verb, v.login, v.call)
from (values ('observed'), ('simulated')) p (provenance)
cross join unnest(array['held', 'approved', 'rejected', 'promoted', 'demoted', 'reassigned', 'simulation-ended']) s (state)
cross join verb v
where not (p.provenance = 'observed' and s.state = 'simulation-ended');
select is_empty($$ select * from oml_fold_check('globex') $$, 'the state is what the journal says');
select is_empty($$ select * from oml_verify_chain('globex') where fault is not null $$, 'and the chain verifies');

-- The hint says what can be done from there.
select alike(
  (pg_temp.refusal_of(format('select pg_temp.as_login(%L, %L)', 'olga', format('select oml_promote(%L)', pg_temp.brought_to(state, provenance))))).hint,
  hint, format('the hint names what is possible from %s, %s', state, provenance)
)
from (values
  ('held', 'observed', 'Possible from there: approve, reject.'), ('held', 'simulated', 'Possible from there: approve, end-simulation, reject.'),
  ('promoted', 'observed', 'Possible from there: demote, reassign.'), ('demoted', 'simulated', 'Possible from there: nothing; it stays as it is.'),
  ('rejected', 'observed', 'Its author submits a next version; that one can be approved and promoted.')
) v (state, provenance, hint);

-- A next version may be submitted whatever became of the one before, and leaves that as it is.
create function pg_temp.resubmitted(state text, provenance text)
returns setof text
language plpgsql
as $$
declare
  artifact uuid := pg_temp.brought_to(state, provenance);
begin
  perform pg_temp.submitted('ann', provenance, 'Once more.', 0, artifact);
  return next results_eq(
    format('select version, state from oml.artifact_version where artifact_id = %L order by version', artifact),
    format('values (1::bigint, %L), (2, ''held'')', state), format('what is %s gets a next version, which is held', state)
  );
  return next is(
    pg_temp.outcome('olga', format('select oml_promote(%L)', artifact)), 'OM219', format('which the verdict on the one that is %s does not count for', state)
  );
  return next is(
    pg_temp.outcome('rita', format('select oml_verdict(%L, ''approve'')', artifact)), 'OM221', format('nor what was served of the one that is %s', state)
  );
end
$$;
select pg_temp.resubmitted(state, case state when 'simulation-ended' then 'simulated' else 'observed' end)
from unnest(array['held', 'approved', 'rejected', 'promoted', 'demoted', 'reassigned', 'simulation-ended']) s (state);

-- An older version that is named.
select pg_temp.submitted() as artifact \gset
select pg_temp.submitted(artifact => :'artifact');
select pg_temp.judged(:'artifact', 'approve', version => 1);
select is(
  pg_temp.outcome('olga', format('select oml_promote(%L)', :'artifact')), 'OM219', 'the newest version is meant when none is named'
);
select lives_ok(
  format('select pg_temp.as_login(%L, %L)', 'olga', format('select oml_promote(%L, version => 1)', :'artifact')), 'an older one can be named'
);
select results_eq(
  format('select version, state from oml.artifact_version where artifact_id = %L order by version', :'artifact'),
  $$ values (1::bigint, 'promoted'), (2, 'held') $$, 'and is what is promoted'
);
select pg_temp.refused_to(
  'olga', format('select oml_promote(%L, version => %s)', :'artifact', version), 'OM228',
  format('artifact %s has no version %s', :'artifact', version), 'Its newest version is 2.', format('there is no version %s', version)
)
from unnest(array[0, 3, -1]) version;

-- What needs a reason.
select pg_temp.brought_to('promoted', 'simulated') as artifact \gset
select pg_temp.refused_to(
  'olga', format(call, :'artifact', reason), 'OM212', format('%s needs a reason', verb), '%signed into the event%', format('%s for the reason %L is refused', verb, reason)
)
from (values
  ('demote', 'select oml_demote(%L, %L)'), ('reassign', 'select oml_reassign(%L, ''archive'', %L)'), ('end-simulation', 'select oml_end_simulation(%L, %L)')
) v (verb, call)
cross join unnest(array['', '   ', null]) reason;
select is(pg_temp.outcome('olga', format('select oml_demote(%L, ''.'')', :'artifact')), null, 'any other will do');
select pg_temp.refused_to(
  'olga', format('select oml_reassign(%L, %L, ''x'')', :'artifact', workarea), 'OM190', format('there is no workarea %L', coalesce(workarea, '')),
  '%oml_create_workarea()%', format('reassign to %L is refused', workarea)
)
from unnest(array['nowhere', '', null, '00000000-0000-0000-0000-000000000000']) workarea;

-- What a decision promises in other places: the reason and the workarea.
select pg_temp.refused_to(
  'olga', format('select oml_reassign(%L, %L, ''x'')', :'artifact', workarea), 'OM229', format('%s/1 lies in workarea ''research/2026'' already', :'artifact'),
  '%oml_workareas()%', format('a move to %s, where it lies, is refused', workarea)
)
from unnest(array['research/2026', :'area']) workarea;
select pg_temp.as_login('olga', format('select oml_reassign(%L, %L, %L)', :'artifact', 'archive', 'done'));
select results_eq(
  format('select state, reason, workarea_id, path from oml.artifact_version where artifact_id = %L', :'artifact'),
  format('values (%L, %L, %L::uuid, %L)', 'reassigned', 'done', :'archive', 'research/2026'),
  'reassigned: another workarea, and the path of the submission'
);
select is_empty($$ select * from oml_fold_check('globex') $$, 'the state is what the journal says');

-- Promotion alone queues content; what changes the state of what was released queues that.
select set_eq(
  $$ select distinct j.type, o.target from oml.outbox o join oml.journal j on j.tenant_id = o.tenant_id and j.seq = o.chain_seq where o.target <> 'bronze.events' $$,
  $$ values ('artifact.promoted', 'silver.claims'), ('artifact.promoted', 'silver.attachments'), ('artifact.promoted', 'bodies'),
       ('artifact.demoted', 'silver.claims'), ('artifact.reassigned', 'silver.claims'), ('artifact.simulation-ended', 'silver.claims') $$,
  'promotion alone queues attachments and bodies, and a later change of state its claim'
);
select is_empty(
  $$ select j.seq from oml.journal j join oml.outbox o on o.tenant_id = j.tenant_id and o.chain_seq = j.seq
     where j.type = 'artifact.promoted' group by j.tenant_id, j.seq
     having array_agg(o.target order by o.seq) <> '{bronze.events,silver.claims,silver.attachments,bodies}' $$, 'once each'
);
select is_empty(
  $$ select type from oml.event_type where targets <> '{bronze.events}' and type not in (select event_type from oml.lifecycle() where from_state in ('promoted', 'reassigned') or to_state = 'promoted') $$, 'and no other type can'
);

select * from finish();
rollback;
