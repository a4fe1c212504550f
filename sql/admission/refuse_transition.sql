create function oml.refuse_transition(verb text, artifact oml.version_row)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  named text := format('%s/%s', artifact.artifact_id, artifact.version);
  allowed text;
begin
  if verb in ('approve', 'reject') and artifact.reviewer is not null then
    raise exception using
      errcode = 'OM216', message = format('principal %L has given its verdict on %s already', artifact.reviewer, named),
      hint = 'There is one verdict on each version. The author may submit a next version, which is reviewed anew.';
  elsif verb = 'promote' and artifact.state = 'rejected' then
    raise exception using
      errcode = 'OM217', message = format('%s was rejected and cannot be promoted', named),
      hint = 'Its author submits a next version; that one can be approved and promoted.';
  elsif verb = 'end-simulation' and artifact.provenance <> 'simulated' then
    raise exception using
      errcode = 'OM218', message = format('%s is %s, and no simulation made it', named, artifact.provenance),
      hint = 'Only what was submitted as simulated is ended so. Demote it to withdraw it.';
  end if;
  select string_agg(distinct l.verb, ', ' order by l.verb) into allowed
  from oml.lifecycle() l
  where l.from_state = artifact.state and (not l.simulated_only or artifact.provenance = 'simulated');
  raise exception using
    errcode = 'OM219', message = format('%s is %s: %s is not possible', named, artifact.state, verb),
    hint = format('Possible from there: %s.', coalesce(allowed, 'nothing; it stays as it is'));
end
$$;
