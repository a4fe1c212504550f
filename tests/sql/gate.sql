-- The write gate: what closes it, what a first append may open, and what the rest needs. What a loss may
-- say is in accepted_loss.sql.
begin;
\ir shared/refused.sql
set local client_min_messages = warning;
select * from no_plan();

create role clerk login in role oml_writer;
create role boss login in role oml_operator;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_grant('clerk', 'globex');
select oml_grant('boss', 'provider', '{operate}');
select oml_register_event_type('invoice.exported');
select value as deployment from oml.setting where name = 'deployment_id' \gset

-- Open.
select results_eq(
  'select is_open, state, reason, policy from oml_gate_status()', $$ values (true, 'open', null::text, 'required') $$,
  'the gate is open after genesis'
);
select is(
  (select instance - 'postmaster_start' from oml_gate_status()), (select opened_last from oml_gate_status()),
  'and the instance that was opened is remembered'
);
select is_empty('select * from oml_fork_check()', 'the database''s own check finds nothing');
select is(oml.gate_open('{}', '{}'), false, 'opening it once more changes nothing');

-- Closed by anything that is another server, another database or another table.
create function pg_temp.append()
returns bigint
language sql
as $$ select (oml_append('invoice.exported', '{}')).seq $$;
grant all on function pg_temp.append() to clerk;
create function pg_temp.stays_closed(preparation text, reason text, hint text, description text)
returns setof text
language plpgsql
as $$
begin
  delete from oml.gate;
  execute preparation;
  return query select pg_temp.refused(
    'set session authorization clerk; select pg_temp.append()', 'OM160', 'the write gate is closed: ' || reason, hint, description
  );
end
$$;
alter table oml.setting disable trigger all;
delete from oml.setting where name in ('lake_url', 'tlog_url');
alter table oml.setting enable always trigger guard_rows, enable always trigger guard_truncate;
savepoint before;
select oml.lake_record_table('bronze.events', 1, 'bronze/events/g1');
select pg_temp.refused(
  'update oml.gate set ' || assignment || '; set session authorization clerk; select pg_temp.append()', 'OM160',
  'the write gate is closed: the server was started anew, or recovered from a crash', 'omld opens it %oml gate open%', format('with %s the gate', assignment)
)
from (values
  ('postmaster_start = postmaster_start - interval ''1 microsecond'''), ('database_oid = 1'), ('journal_oid = 1'), ('timeline = ''00000000''')
) v (assignment);
rollback to before;

-- A first append opens it, where there is nothing to compare with.
delete from oml.gate;
set session authorization clerk;
select is(pg_temp.append(), 2::bigint, 'a first append after a restart goes through');
reset session authorization;
select results_eq(
  'select is_open, opened_by, evidence from oml_gate_status()',
  $$ values (true, 'clerk', '{"lake": "none", "tlog": "none", "database": "checked"}'::jsonb) $$, 'and has opened the gate'
);
rollback to before;
delete from oml.gate;
set session authorization clerk;
savepoint appended;
select is(pg_temp.append(), 2::bigint, 'one that is rolled back');
rollback to appended;
reset session authorization;
select is((select state from oml_gate_status()), 'restarted', 'leaves it closed');
rollback to before;

-- Not where something was drained or published, where the key is elsewhere, or on another instance.
select pg_temp.stays_closed(
  'update oml.frontier set seq = 1', 'the server was started anew, or recovered from a crash',
  'omld opens it %', 'what was drained must be looked at, it'
);
rollback to before;
select pg_temp.stays_closed(
  'insert into oml.setting values (''lake_url'', ''file:///lake'')', 'the server was started anew, or recovered from a crash',
  'omld opens it %', 'where a lake may be, it'
);
rollback to before;
select pg_temp.stays_closed(
  'insert into oml.setting values (''tlog_url'', ''file:///tlog'')', 'the server was started anew, or recovered from a crash',
  'omld opens it %', 'where logs may be, it'
);
rollback to before;
select pg_temp.stays_closed(
  'insert into oml.lake_table (name, location) values (''bronze.events'', ''here'')', 'the server was started anew, or recovered from a crash',
  'omld opens it %', 'a lake must be looked at, it'
);
rollback to before;
select pg_temp.stays_closed(
  format('insert into oml.tlog (tenant_id, generation) values (%L, 2)', :'globex'), 'the server was started anew, or recovered from a crash', 'omld opens it %',
  'a log must be looked at, it'
);
rollback to before;
select pg_temp.stays_closed(
  'update oml.setting set value = ''unix:/nowhere'' where name = ''signer''', 'the server was started anew, or recovered from a crash', 'omld opens it %',
  'where omld signs, it'
);
rollback to before;
select pg_temp.stays_closed(
  'update oml.instance set timeline = ''00000000''', 'the server was promoted or restored from a backup: it is on WAL timeline 00000001, not 00000000',
  'omld opens it %', 'on another timeline it'
);
rollback to before;
select pg_temp.stays_closed(
  'update oml.instance set system_identifier = 1', 'this is a logical copy: a restored dump, a copied or an upgraded database', '%oml adopt%',
  'with another system_identifier it'
);
rollback to before;
select pg_temp.stays_closed(
  'update oml.instance set database_oid = 1', 'this is a logical copy: a restored dump, a copied or an upgraded database', '%oml adopt%',
  'with another database_oid it'
);
rollback to before;
select pg_temp.stays_closed(
  'update oml.instance set journal_oid = 1', 'this is a logical copy: a restored dump, a copied or an upgraded database', '%oml adopt%',
  'with another journal_oid it'
);
rollback to before;
select pg_temp.stays_closed(
  'update oml.instance set journal_oid = 1, timeline = ''00000000''', 'this is a logical copy: a restored dump, a copied or an upgraded database', '%oml adopt%',
  'with another journal_oid, timeline it'
);
rollback to before;

-- The database's own check: what a crash, a partial restore or an edit leaves at the end of a chain.
create function pg_temp.found_after(edit text)
returns text[]
language plpgsql
as $$
declare
  found text;
  refusal pg_temp.refusal;
begin
  alter table oml.journal disable trigger user;
  alter table oml.chain_head disable trigger user;
  alter table oml.key disable trigger user;
  execute edit;
  select string_agg(format('%s %s %s', tenant, seq, class), ', ' order by tenant) into found from oml_fork_check();
  delete from oml.gate;
  refusal := pg_temp.refusal_of('set session authorization clerk; select pg_temp.append()');
  raise exception using errcode = 'P0001', message = concat_ws(E'\n', found, refusal.sqlstate || ': ' || refusal.message, refusal.hint);
exception when raise_exception then
  return string_to_array(sqlerrm, E'\n');
end
$$;
set session authorization clerk;
select pg_temp.append(), pg_temp.append(), pg_temp.append();
reset session authorization;
create temporary table damage as
select d.description, d.expected, pg_temp.found_after(replace(d.edit, '$globex', quote_literal(:'globex'))) as found
from (values
  ('a last event with another signature', $$ update oml.journal set envelope = set_byte(envelope, octet_length(envelope) - 1, get_byte(envelope, octet_length(envelope) - 1) # 1) where tenant_id = $globex and seq = 4 $$, 'globex 4 signature-invalid'),
  ('a last event that is no envelope', $$ update oml.journal set envelope = 'x' where tenant_id = $globex and seq = 4 $$, 'globex 4 malformed-envelope'),
  ('a last event with another hash', $$ update oml.journal set hash = sha256('x') where tenant_id = $globex and seq = 4 $$, 'globex 4 hash-mismatch'),
  ('a last event with another column', $$ update oml.journal set principal = 'mallory' where tenant_id = $globex and seq = 4 $$, 'globex 4 column-mismatch'),
  ('an event before it with another envelope', $$ update oml.journal set envelope = set_byte(envelope, 40, get_byte(envelope, 40) # 1) where tenant_id = $globex and seq = 3 $$, 'globex 3 hash-mismatch'),
  ('an event before it with another hash', $$ update oml.journal set hash = sha256('x') where tenant_id = $globex and seq = 3 $$, 'globex 3 hash-mismatch'),
  ('another event before it', $$ update oml.journal set (envelope, hash) = (select envelope, hash from oml.journal where tenant_id = $globex and seq = 2) where tenant_id = $globex and seq = 3 $$, 'globex 4 broken-link'),
  ('an event before it that is gone', $$ delete from oml.journal where tenant_id = $globex and seq = 3 $$, 'globex 3 missing-event'),
  ('a tail that is gone', $$ delete from oml.journal where tenant_id = $globex and seq = 4 $$, 'globex 4 tail-missing'),
  ('a chain that is gone', $$ delete from oml.journal where tenant_id = $globex $$, 'globex 1 chain-missing'),
  ('a chain without its lock', $$ delete from oml.chain_head where tenant_id = $globex $$, 'globex 5 head-missing')
) d (description, edit, expected);
select is(found[1], expected, description || ' is found') from damage;
select alike(found[2], 'OM161: the write gate stays closed: % chain(s) do not end as they must, the first is globex at seq %', description || ' keeps the gate closed') from damage;
select alike(found[3], '%oml_fork_check()%', 'and the hint says how to see it all') from damage;
select alike(
  (pg_temp.found_after('delete from oml.key where purpose = ''root'''))[1], '%globex 4 unknown-key, initech 1 unknown-key, provider % unknown-key%',
  'keys that nobody issued are found'
);
select is_empty('select * from oml_fork_check()', 'nothing of that was left');

-- And however the gate is opened.
create function pg_temp.instance()
returns jsonb
language sql
as $$ select instance from oml_gate_status() $$;
create function pg_temp.refused_with_damage(preparation text, opening text)
returns text
language plpgsql
as $$
declare
  refusal pg_temp.refusal;
begin
  alter table oml.journal disable trigger user;
  update oml.journal j set hash = sha256('x') from oml.tenant t where t.tenant_id = j.tenant_id and t.name = 'globex' and j.seq = 4;
  delete from oml.gate;
  execute preparation;
  refusal := pg_temp.refusal_of(opening);
  raise exception using errcode = 'P0001', message = concat(refusal.sqlstate, ': ', refusal.message);
exception when raise_exception then
  return sqlerrm;
end
$$;
select alike(
  pg_temp.refused_with_damage(preparation, opening), 'OM161: the write gate stays closed: 1 chain(s) do not end as they must, the first is globex at seq 4%',
  opening || ' opens no gate of a damaged journal'
)
from (values
  ('', 'select oml.gate_open(pg_temp.instance(), ''{}'')'),
  ('update oml.instance set system_identifier = 7', 'select oml_adopt(''moved'')'),
  ('', format('select oml_gate_accept_loss(''disk'', ''[{"tenant_id": "%s", "last_seq": 4, "lost_from": 5, "lost_to": 5}]'')', :'globex'))
) v (preparation, opening);

-- Opening it on evidence.
grant execute on function pg_temp.instance() to boss;
delete from oml.gate;
set session authorization boss;
select pg_temp.refused(
  $$ select oml.gate_open(jsonb_set(pg_temp.instance(), '{postmaster_start}', '"2000-01-01T00:00:00.000000Z"'), '{}') $$, 'OM162',
  'the write gate stays closed: this server is not the one that was checked, but ' || pg_temp.instance()::text, '%Check again%', 'an instance that was not checked'
);
select pg_temp.refused(
  'select oml.gate_open(null, ''{}'')', 'OM162', 'the write gate stays closed: this server is not the one that was checked, but ' || pg_temp.instance()::text,
  '%Check again%', 'no instance'
);
select pg_temp.refused('select oml.gate_open(pg_temp.instance(), ' || coalesce(quote_literal(evidence), 'null') || ')', 'OM163',
  'the write gate is opened on evidence, and none is named', '%JSON object%', coalesce(evidence, 'null') || ' as evidence')
from unnest(array[null, '[]', '1']) evidence;
select is(oml.gate_open(pg_temp.instance(), '{"lake": "none"}'), true, 'the instance that was checked is opened');
select results_eq('select is_open, opened_by, evidence from oml_gate_status()', $$ values (true, 'boss', '{"lake": "none"}'::jsonb) $$, 'and it is told by whom and why');
reset session authorization;

-- Numbers in use are not drawn again.
savepoint numbers;
delete from oml.gate;
select setval('oml.outbox_seq', 1), setval('oml.chain_no', 1);
select oml.gate_open(pg_temp.instance(), '{}');
select results_eq(
  'select o.last_value, c.last_value from oml.outbox_seq o, oml.chain_no c', 'select max(o.seq), (select max(chain_no) from oml.tenant) from oml.outbox o',
  'opening moves the sequences up to what is in use'
);
rollback to numbers;

-- Adopting a copy.
select pg_temp.refused('select oml_adopt(''moved'')', 'OM165', 'this database is no logical copy: there is nothing to adopt', '%oml gate open%', 'adopting the original');
select pg_temp.refused(format('select oml_adopt(%L)', reason), 'OM164', 'this needs a reason of 1 to 512 bytes', '%journalled%', 'adopting for no reason')
from unnest(array[null, '', ' ', repeat('x', 513)]) reason;
savepoint copied;
delete from oml.gate;
update oml.instance set system_identifier = 7;
set session authorization boss;
select pg_temp.refused('select oml.gate_open(pg_temp.instance(), ''{}'')', 'OM160', 'the write gate is closed: this is a logical copy: a restored dump, a copied or an upgraded database', '%oml adopt%', 'opening a copy');
select lives_ok('select oml_adopt(''moved to a new machine'')', 'a copy is adopted');
reset session authorization;
select results_eq(
  $$ select payload, principal from oml.journal where type = 'database.adopted' $$,
  $$ select jsonb_build_object('from', opened_last || '{"system_identifier": "7"}', 'to', instance, 'reason', 'moved to a new machine'), 'boss' from oml_gate_status() $$,
  'and the provider chain says so'
);
select is((select is_open from oml_gate_status()), true, 'the gate is open');
select ok((select ok from oml_verify_chain('provider')), 'and the chain verifies');
rollback to copied;

-- Accepting a loss.
select pg_temp.refused(format('select oml_gate_accept_loss(%L, %L)', 'disk', losses), 'OM166', 'no loss is named, so there is none to accept', '%oml gate accept-loss%', coalesce(losses, 'null') || ' as losses')
from unnest(array[null, '[]', '{}', '1']) losses;
select pg_temp.refused('select oml_gate_accept_loss('''', ''[{}]'')', 'OM164', 'this needs a reason of 1 to 512 bytes', '%journalled%', 'accepting a loss for no reason');
create function pg_temp.loss(last_seq bigint)
returns jsonb
language sql
as $$
  select jsonb_build_array(jsonb_build_object('tenant_id', t.tenant_id, 'tenant', 'globex', 'last_seq', last_seq, 'lost_from', 5, 'lost_to', 7, 'lake_events', 3, 'generation', 2))
  from oml.tenant t where t.name = 'globex'
$$;
select pg_temp.refused('select oml_gate_accept_loss(''disk'', pg_temp.loss(4), 100)', 'OM167', 'the write gate is open: no loss stands in the way', '%restart%', 'accepting a loss while the gate is open');
delete from oml.gate;
select pg_temp.refused('select oml_gate_accept_loss(''disk'', pg_temp.loss(5), 100)', 'OM168', format('the journal of tenant %s ends at seq 4, not at 5', :'globex'), '%Look again%', 'a loss in another state of the journal');
select max(seq) as outbox_end from oml.outbox \gset
select oml_gate_accept_loss('the disk died', pg_temp.loss(4) || jsonb_build_array(jsonb_build_object('tenant_id', gen_random_uuid(), 'last_seq', 0, 'lost_from', 1, 'lost_to', 2, 'lake_events', 2)), :outbox_end + 40) as accepted \gset
select is((select max(seq) from oml.journal where tenant_id = :'deployment'), :accepted::bigint, 'a loss is accepted');
select results_eq(
  $$ select payload - 'losses', (payload -> 'losses') - 1 from oml.journal where type = 'journal.loss-accepted' $$,
  format($$ values ('{"page": 1, "pages": 1, "reason": "the disk died", "lake_version": %1$s, "outbox": {"after": 0, "upto": %1$s}}'::jsonb, pg_temp.loss(4)) $$, :outbox_end + 40),
  'the provider chain says what is lost, and why'
);
select results_eq(
  $$ select tenant, journal_head, lost_from, lost_to, lake_events, outbox_after, outbox_upto from oml.accepted_loss order by tenant $$,
  format($$ values ('globex', 4::bigint, 5::bigint, 7::bigint, 3::bigint, 0::bigint, %1$s::bigint), (null, 0, 1, 2, 2, 0, %1$s) $$, :outbox_end + 40),
  'and so does the table for the lake''s readers'
);
select is((select min(seq) from oml.outbox where seq > :outbox_end), :outbox_end + 41::bigint, 'the outbox goes on above the lake');
select results_eq('select generation, size from oml.tlog', 'values (3, 0::bigint)', 'the tenant''s log begins its next generation; a lost tenant has none');
select is((select is_open from oml_gate_status()), true, 'the gate is open');
set session authorization clerk;
select is(pg_temp.append(), 5::bigint, 'and appends go on');
reset session authorization;
select ok((select ok from oml_verify_chain('globex')) and (select ok from oml_verify_chain('provider')), 'the chains verify');

-- Many tenants: pages that fit an event.
delete from oml.gate;
select oml_gate_accept_loss('the disk died again', (
  select jsonb_agg(jsonb_build_object('tenant_id', gen_random_uuid(), 'tenant', repeat('t', 63), 'last_seq', 0, 'lost_from', 1, 'lost_to', 1000000000001))
  from generate_series(1, 250)
));
select results_eq(
  $$ select (payload ->> 'page')::int, (payload ->> 'pages')::int, jsonb_array_length(payload -> 'losses') from oml.journal
     where payload ->> 'reason' = 'the disk died again' order by seq $$,
  'values (1, 3, 100), (2, 3, 100), (3, 3, 50)', 'losses of many tenants go into several events'
);
select cmp_ok((select max(octet_length(payload::text)) from oml.journal where payload ->> 'reason' = 'the disk died again'), '<', 65536, 'none of which is too large');
select is((select count(*) from oml.accepted_loss where lost_to = 1000000000001), 250::bigint, 'and none is left out');

select * from finish();
rollback;
