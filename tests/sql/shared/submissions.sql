-- Tenants globex and initech with logins that submit, review and operate, and two workareas of globex; and
-- functions by which a superuser's test lets one of them act. Include refused.sql before.

create role ann login in role oml_writer;
create role ben login in role oml_writer;
create role carl login in role oml_writer;
create role rita login in role oml_reviewer;
create role rolf login in role oml_reviewer, oml_writer;
create role olga login in role oml_operator;
create role eve login in role oml_writer, oml_reviewer, oml_operator, oml_auditor;
create role stranger login in role oml_writer, oml_reviewer, oml_operator, oml_auditor;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
do $$
begin
  perform oml_grant(l, 'globex', '{submit}') from unnest(array['ann', 'ben', 'carl']) l;
  perform oml_grant('rita', 'globex', '{review}');
  perform oml_grant('rolf', 'globex', '{review,submit}');
  perform oml_grant('olga', 'globex', '{operate}');
  perform oml_grant('eve', 'initech', '{append,submit,review,operate,audit}');
end
$$;
set session authorization olga;
select oml_create_workarea('research/2026') as area \gset
select oml_create_workarea('archive') as archive \gset
select oml_create_workarea('attic') as attic \gset
select oml_add_member('research/2026', 'ann');
select oml_add_member('research/2026', 'ben');
select oml_add_member('research/2026', 'rolf');
select oml_add_member('archive', 'carl');
reset session authorization;

-- Runs a statement as a login and returns the first column of its first row.
create function pg_temp.as_login(login text, statement text)
returns text
language plpgsql
as $$
declare
  answer text;
begin
  execute format('set local session authorization %I', login);
  execute statement into answer;
  reset session authorization;
  return answer;
end
$$;

-- The SQLSTATE with which a login's statement is refused; null if it is not. What it did is undone.
create function pg_temp.outcome(login text, statement text)
returns text
language plpgsql
as $$
begin
  perform pg_temp.as_login(login, statement);
  raise exception using errcode = 'ZZ000';
exception
  when sqlstate 'ZZ000' then
    return null;
  when others then
    return sqlstate;
end
$$;

create function pg_temp.refused_to(login text, statement text, sqlstate text, message text, hint text, description text)
returns setof text
language plpgsql
as $$
begin
  execute format('set local session authorization %I', login);
  return query select * from pg_temp.refused(statement, sqlstate, message, hint, description);
  reset session authorization;
end
$$;

-- The artifact that a login submits: with as many attachments as are asked for, or as a next version.
create function pg_temp.submitted(
  login text default 'ann', provenance text default 'observed', body text default 'A note.', attachments int default 0, artifact uuid default null
)
returns uuid
language sql
as $$
  select pg_temp.as_login(login, format(
    'select artifact_id from oml_submit(%L, convert_to(%L, %L), %L, %L, artifact => %L, attachment_names => %L, attachment_types => %L, attachments => %L)',
    'research/2026', body, 'UTF8', 'text/plain', provenance, artifact,
    array(select 'file ' || n from generate_series(1, attachments) n),
    array(select 'text/plain' from generate_series(1, attachments) n),
    array(select convert_to('attached ' || n, 'UTF8') from generate_series(1, attachments) n)
  ))::uuid
$$;

create function pg_temp.judged(artifact uuid, verdict text, reviewer text default 'rita', version bigint default null)
returns void
language plpgsql
as $$
begin
  perform pg_temp.as_login(reviewer, format('select count(*) from oml_review_serve(%L, %L)', artifact, version));
  perform pg_temp.as_login(reviewer, format('select oml_verdict(%L, %L, %L, %L)', artifact, verdict, 'read it', version));
end
$$;

-- A version in this state, by the shortest way there.
create function pg_temp.brought_to(state text, provenance text default 'observed')
returns uuid
language plpgsql
as $$
declare
  artifact uuid := pg_temp.submitted('ann', provenance);
begin
  if state in ('approved', 'promoted', 'demoted', 'reassigned') then
    perform pg_temp.judged(artifact, 'approve');
  elsif state = 'rejected' then
    perform pg_temp.judged(artifact, 'reject');
  elsif state = 'simulation-ended' then
    perform pg_temp.as_login('olga', format('select oml_end_simulation(%L, %L)', artifact, 'over'));
  end if;
  if state in ('promoted', 'demoted', 'reassigned') then
    perform pg_temp.as_login('olga', format('select oml_promote(%L)', artifact));
  end if;
  if state = 'demoted' then
    perform pg_temp.as_login('olga', format('select oml_demote(%L, %L)', artifact, 'wrong'));
  elsif state = 'reassigned' then
    perform pg_temp.as_login('olga', format('select oml_reassign(%L, %L, %L)', artifact, 'archive', 'finished'));
  end if;
  return artifact;
end
$$;
