-- The lifecycle of a version, in this one place: every allowed change of state, and what it takes. The
-- transitions are made by oml.transit; the docs draw their picture of this table.
create function oml.lifecycle()
returns table (
  verb text, from_state text, to_state text, permission text, event_type text, simulated_only boolean, description text
)
language sql
immutable
set search_path = pg_catalog, pg_temp
as $$
  values
    ('submit', null, 'held', 'submit', 'submission.submit', false, 'A member of the workarea submits a version. It is held: nobody but its author and its reviewers can read it.'),
    ('approve', 'held', 'approved', 'review', 'review.verdict', false, 'A reviewer to whom every part was served, and who is not the author, approves it.'),
    ('reject', 'held', 'rejected', 'review', 'review.verdict', false, 'Such a reviewer rejects it. Its author may submit a next version.'),
    ('promote', 'approved', 'promoted', 'operate', 'artifact.promoted', false, 'It is released to the workarea''s members, and queued for the lake and the object store.'),
    ('demote', 'promoted', 'demoted', 'operate', 'artifact.demoted', false, 'It is withdrawn.'),
    ('demote', 'reassigned', 'demoted', 'operate', 'artifact.demoted', false, 'It is withdrawn from the workarea it was moved to.'),
    ('reassign', 'promoted', 'reassigned', 'operate', 'artifact.reassigned', false, 'It is moved: from now on it is released to the members of another workarea.'),
    ('reassign', 'reassigned', 'reassigned', 'operate', 'artifact.reassigned', false, 'It is moved again.'),
    ('end-simulation', 'held', 'simulation-ended', 'operate', 'artifact.simulation-ended', true, 'The simulation that made it is over: it will not be reviewed.'),
    ('end-simulation', 'approved', 'simulation-ended', 'operate', 'artifact.simulation-ended', true, 'The simulation that made it is over: it will not be released.'),
    ('end-simulation', 'promoted', 'simulation-ended', 'operate', 'artifact.simulation-ended', true, 'The simulation that made it is over: it is withdrawn.'),
    ('end-simulation', 'reassigned', 'simulation-ended', 'operate', 'artifact.simulation-ended', true, 'The simulation that made it is over: it is withdrawn.')
$$;
comment on function oml.lifecycle() is 'Every allowed change of a version''s state: verb, states before and after, permission, event type, and whether it is for simulated versions alone.';
