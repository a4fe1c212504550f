-- What an event says of its durability, and what the production profile refuses. The accepted half needs a
-- server with standbys and is tested there.
begin;
\ir shared/refused.sql
select * from no_plan();

create role clerk login in role oml_writer;
select oml_create_tenant('globex') as globex \gset
select oml_grant('clerk', 'globex');
select oml_register_event_type('invoice.exported');

-- Every event states the setting it was appended under, and signs it.
set session authorization clerk;
create function pg_temp.append_under(level text) returns bigint language sql as $$
  select set_config('synchronous_commit', level, true);
  select (oml_append('invoice.exported', jsonb_build_object('level', level))).seq;
$$;
create function pg_temp.batch_under(level text) returns bigint language sql as $$
  select set_config('synchronous_commit', level, true);
  select count(*) from oml_append_batch(jsonb_build_array(
    jsonb_build_object('type', 'invoice.exported', 'payload', jsonb_build_object('level', level)),
    jsonb_build_object('type', 'invoice.exported', 'payload', jsonb_build_object('level', level))));
$$;
select lives_ok(format('select pg_temp.append_under(%L)', level), format('an append under %s', level))
from unnest(array['off', 'local', 'remote_write', 'on', 'remote_apply']) level;
select lives_ok(format('select pg_temp.batch_under(%L)', level), format('a batch under %s', level))
from unnest(array['off', 'local', 'remote_write', 'on', 'remote_apply']) level;
set local synchronous_commit = 'true';
select lives_ok($$ select oml_append('invoice.exported', '{"level": "on"}') $$, 'an append under another word for on');
reset session authorization;
select is(
  (select array_agg(j.synchronous_commit order by j.seq) from oml.journal j where j.tenant_id = :'globex' and j.seq > 1),
  (select array_agg(j.payload ->> 'level' order by j.seq) from oml.journal j where j.tenant_id = :'globex' and j.seq > 1),
  'each event states the setting of its append'
);
select is((select count(*) from oml.journal j where j.tenant_id = :'globex'), 17::bigint, 'all of them');
select ok((select ok from oml_verify_chain('globex')), 'and what they state is signed');

-- The local profile asks nothing; it is what a deployment begins with.
select is((select s.value from oml.setting s where s.name = 'profile'), 'local', 'a deployment begins with the local profile');

-- Production needs a quorum, and is not to be set without: the next append would fail.
set local synchronous_commit = 'local';
select pg_temp.refused(
  $$ select oml_configure('profile', 'production') $$, 'OM180', 'synchronous_commit is local: the production profile asks for remote_write or more',
  'Set it to remote_write, %', 'production cannot be set by a session below the floor'
);
set local synchronous_commit = 'remote_apply';
select pg_temp.refused(
  $$ select oml_configure('profile', 'production') $$, 'OM181', 'synchronous_standby_names is empty: no standby confirms a commit, as the production profile asks',
  'Replicate to a quorum, %', 'nor without synchronous standbys'
);

-- Every kind of append is refused, those of the deployment itself too.
update oml.setting set value = 'production' where name = 'profile';
create temporary table attempt (what text, statement text);
insert into attempt values
  ('an append', $$ select oml_append('invoice.exported', '{}', tenant => 'globex') $$),
  ('a batch', $$ select oml_append_batch('[{"type": "invoice.exported", "payload": {}}]') $$);
grant select on attempt to clerk;
set session authorization clerk;
set local synchronous_commit = 'off';
select pg_temp.refused(statement, 'OM180', 'synchronous_commit is off: the production profile asks for remote_write or more', 'Set it to %', what || ' under off')
from attempt;
set local synchronous_commit = 'local';
select pg_temp.refused(statement, 'OM180', 'synchronous_commit is local: the production profile asks for remote_write or more', 'Set it to %', what || ' under local')
from attempt;
set local synchronous_commit = 'on';
select pg_temp.refused(statement, 'OM181', 'synchronous_standby_names is empty: no standby confirms a commit, as the production profile asks', 'Replicate to a quorum, %', what || ' on one disk')
from attempt;
reset session authorization;
select pg_temp.refused(statement, 'OM181', 'synchronous_standby_names is empty: no standby confirms a commit, as the production profile asks', 'Replicate to a quorum, %', what || ' is refused on one disk')
from (values
  ('a new tenant', $$ select oml_create_tenant('initech') $$), ('an event type', $$ select oml_register_event_type('invoice.paid') $$),
  ('a writer''s key', $$ select oml_issue_key(sha256('key'), 'writer', 'globex', 'clerk') $$)
) v (what, statement);
select is((select count(*) from oml.journal j where j.tenant_id = :'globex'), 17::bigint, 'nothing was appended');
select lives_ok($$ select oml_configure('profile', 'local') $$, 'a superuser may go back to the local profile');
set session authorization clerk;
select lives_ok(statement, what || ' is taken again') from attempt;
reset session authorization;

-- A setting that somebody removed does not open the door.
alter table oml.setting disable trigger guard_rows;
delete from oml.setting where name = 'profile';
set session authorization clerk;
select pg_temp.refused(statement, 'OM042', 'the deployment''s settings lack its signer, id or profile', '%removed behind OML''s back%', what || ' without a profile')
from attempt;
reset session authorization;
select * from finish();
rollback;
