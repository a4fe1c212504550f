-- Append-only, whoever asks: a superuser too, and also while triggers are off for everybody else's.
begin;
set local client_min_messages = warning;
select * from no_plan();

create role clerk login in role oml_writer;
select oml_create_tenant('globex') as globex \gset
select oml_grant('clerk', 'globex');
select oml_register_event_type('invoice.exported');
set session authorization clerk;
select oml_append('invoice.exported', '{}', entity_type => 'invoice', entity_id => '7');
reset session authorization;
create role author login in role oml_writer, oml_reviewer, oml_operator;
select oml_grant('author', 'globex', '{submit,operate}'), oml_grant('author', 'globex', '{submit,review}', 'another');
set session authorization author;
select oml_use(principal => 'author');
select oml_create_workarea('here'), oml_add_member('here', 'author'), oml_add_member('here', 'another');
select artifact_id as source from oml_submit('here', 'a', 'text/plain', 'observed', attachment_names => '{b}', attachment_types => '{text/plain}', attachments => '{b}') \gset
select artifact_id as made from oml_submit('here', 'c', 'text/plain', 'derived', derived_from => array[:'source' || '/1']) \gset
select oml_use(principal => 'another');
select count(*) from oml_review_serve(:'source');
select set_config('oml.transaction', '', true);
reset session authorization;
insert into oml.writer_envelope (tenant_id, artifact_id, version, envelope) values (:'globex', :'source', 1, 'x');
insert into oml.lake_table (name, location) values ('silver.test', 'here');
insert into oml.accepted_loss (accepted_seq, tenant_id, journal_head, outbox_after, outbox_upto) values (1, :'globex', 2, 3, 4);
insert into oml.dead_letter (outbox_seq, tenant_id, chain_seq, target, artifact_id, artifact_version, reason, attempts, skipped_seq)
values (1, :'globex', 2, 'bodies', gen_random_uuid(), 1, 'damaged', 1, 1);
insert into oml.impersonation (session_id, login, by_principal, tenant_id, tenant, principal, reason, started_at, expires_at)
values (gen_random_uuid(), 'clerk', 'clerk', :'globex', 'globex', 'ada', 'ticket 7', now(), now() + interval '1 hour');
update oml.frontier set seq = seq + 5;
insert into oml.tlog (tenant_id, size, root, checkpoint, published_at) values (:'globex', 2, sha256('2'), 'note', now());
insert into oml.tlog_node (tenant_id, generation, level, n, hash) values (:'globex', 1, 1, 0, sha256('1'));
create temporary table digest as
select 'before' as moment, (select md5(string_agg(j::text, ',' order by j.event_id)) from oml.journal j) as journal;

create temporary table attempt (table_name text, operation text, statement text);
insert into attempt
select t, o, format(
  case o when 'UPDATE' then 'update oml.%1$I set %2$I = %2$I' when 'DELETE' then 'delete from oml.%1$I'
    else 'truncate oml.%1$I cascade' end, t, c
)
from (values
  ('journal', 'seq'), ('outbox', 'seq'), ('tenant', 'name'), ('event_type', 'max_bytes'), ('accepted_loss', 'tenant'), ('tlog_node', 'n'),
  ('attachment', 'name'), ('derived_from', 'source_version'), ('artifact_event', 'seq'), ('dek', 'wrapped'), ('body', 'ciphertext'), ('writer_envelope', 'envelope')
) as never_changed (t, c)
cross join unnest(array['UPDATE', 'DELETE', 'TRUNCATE']) o;
insert into attempt
select t, o, format(case o when 'DELETE' then 'delete from oml.%I' else 'truncate oml.%I cascade' end, t)
from unnest(array['lake_table', 'setting', 'frontier', 'chain_head', 'key', 'impersonation', 'instance', 'tlog', 'lease', 'dead_letter', 'workarea', 'workarea_member', 'artifact_version', 'served']) t cross join unnest(array['DELETE', 'TRUNCATE']) o;
insert into attempt values
  ('entity', 'DELETE', 'delete from oml.entity'), ('entity', 'TRUNCATE', 'truncate oml.entity'),
  ('membership', 'TRUNCATE', 'truncate oml.membership'), ('gate', 'TRUNCATE', 'truncate oml.gate');

select set_eq(
  'select distinct table_name from attempt',
  $$ select relname::text from pg_class where relnamespace = 'oml'::regnamespace and relkind in ('r', 'p') $$,
  'no table is without a guard'
);
select is_empty(
  format('select table_name from attempt a where not exists (select from oml.%I)', table_name),
  format('%s has rows to guard', table_name)
)
from (select distinct table_name from attempt) t;

select throws_ok(
  statement, 'OM060', format('%s on oml.%s is refused: it is append-only', operation, table_name),
  format('%s of %s is refused', operation, table_name)
)
from attempt;
set session_replication_role = replica;
select throws_ok(
  statement, 'OM060', format('%s on oml.%s is refused: it is append-only', operation, table_name),
  format('%s of %s is refused under session_replication_role = replica', operation, table_name)
)
from attempt;
reset session_replication_role;

-- Rows of which one column may change.
create temporary table change (table_name text, what text, statement text, message text);
insert into change values
  ('chain_head', 'another column', 'update oml.chain_head set chain_no = chain_no + 1000', 'only kid may change'),
  ('chain_head', 'another column beside it', 'update oml.chain_head set kid = ''\x0000000000000000'', chain_no = chain_no + 1000', 'only kid may change'),
  ('key', 'another column', 'update oml.key set issued_seq = 0', 'it is append-only'),
  ('key', 'another column beside it', 'update oml.key set retired_seq = 9, purpose = ''signing''', 'it is append-only'),
  ('impersonation', 'another column', 'update oml.impersonation set reason = ''other''', 'it is append-only');
insert into change
select c.relname, a.attname, format('update oml.%I set %I = %s', c.relname, a.attname, case format_type(a.atttypid, null)
    when 'uuid' then 'gen_random_uuid()' when 'text' then '''x''' when 'bytea' then '''x''' when 'boolean' then 'not ' || a.attname
    when 'timestamp with time zone' then 'now() + interval ''1 day''' else a.attname || ' + 1' end), format('only %s may change', k.columns)
from (values
  ('workarea', 'path, last_seq'), ('workarea_member', 'is_member, last_seq'), ('artifact_version', 'workarea_id, state, state_seq, reviewer, reason'), ('served', 'served_seq')
) k (table_name, columns)
join pg_class c on c.oid = ('oml.' || k.table_name)::regclass
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and a.attname <> all (string_to_array(k.columns, ', '));
select throws_ok(
  statement, 'OM060', format('UPDATE on oml.%s is refused: %s', table_name, message), format('%s of %s may not change', what, table_name)
)
from change;
set session_replication_role = replica;
select throws_ok(
  statement, 'OM060', format('UPDATE on oml.%s is refused: %s', table_name, message),
  format('%s of %s may not change under session_replication_role = replica', what, table_name)
)
from change;
reset session_replication_role;
savepoint before;
select lives_ok('update oml.chain_head set kid = ''\x0000000000000000''', 'the key in force on a chain may change');
select lives_ok('update oml.key set retired_seq = 9', 'a key may be retired');
select throws_ok('update oml.key set retired_seq = 10', 'OM060', null, 'once');
select throws_ok('update oml.key set retired_seq = null', 'OM060', null, 'and for good');
select lives_ok('update oml.impersonation set ended_at = now()', 'an impersonation may be ended');
select throws_ok('update oml.impersonation set ended_at = null', 'OM060', null, 'for good');
rollback to before;

-- Other ways to the same end.
select throws_ok(statement, 'OM060', null, format('%s is refused', name))
from (values
  ('MERGE that deletes', 'merge into oml.journal j using oml.tenant t on t.tenant_id = j.tenant_id when matched then delete'),
  ('MERGE that updates', 'merge into oml.outbox o using oml.tenant t on t.tenant_id = o.tenant_id when matched then update set seq = o.seq'),
  ('an INSERT that turns into an UPDATE',
    'insert into oml.journal select * from oml.journal on conflict (tenant_id, seq) do update set payload = ''{}'''),
  ('a DELETE in a WITH clause', 'with gone as (delete from oml.journal returning *) select count(*) from gone'),
  ('TRUNCATE of several tables at once', 'truncate oml.outbox, oml.journal'),
  ('TRUNCATE that restarts numbers', 'truncate oml.outbox restart identity')
) w (name, statement);
select throws_ok(
  'update only oml.journal set payload = ''{}'' where ctid = (select ctid from oml.journal limit 1)', 'OM060', null,
  'one row found by its place is no exception'
);

-- The frontier.
select throws_ok(
  $$ update oml.frontier set seq = seq - 1 where name = 'lake' $$, 'OM061',
  format('frontier ''lake'' may not go back from %s to %s', seq, seq - 1), 'the frontier does not go back'
)
from oml.frontier where name = 'lake';
set session_replication_role = replica;
select throws_ok(
  $$ update oml.frontier set seq = 0 $$, 'OM061', null, 'nor under session_replication_role = replica'
);
reset session_replication_role;
select lives_ok('update oml.frontier set seq = seq', 'it may stand');
select lives_ok('update oml.frontier set seq = seq + 1', 'and advance');

-- A log.
create temporary table step (what text, change text, allowed boolean);
insert into step values
  ('shrink', 'size = 1', false), ('get another root', 'root = sha256(''other'')', false), ('go back to nothing', 'size = 0, root = null, checkpoint = null, published_at = null', false),
  ('go back to an earlier generation', 'generation = 0', false), ('become another tenant''s', 'tenant_id = gen_random_uuid()', false),
  ('grow', 'size = 3, root = sha256(''3'')', true), ('be cosigned', 'checkpoint = ''cosigned''', true),
  ('begin anew', 'generation = 2, size = 0, root = null, checkpoint = null, published_at = null', true),
  ('begin anew with another size', 'generation = 3, size = 1, root = sha256(''1''), checkpoint = ''note'', published_at = now()', true);
select throws_ok(format('update oml.tlog set %s', change), 'OM150', null, format('a log may not %s', what)) from step where not allowed;
set session_replication_role = replica;
select throws_ok(
  format('update oml.tlog set %s', change), 'OM150', null, format('a log may not %s under session_replication_role = replica', what)
)
from step where not allowed;
reset session_replication_role;
select lives_ok(format('update oml.tlog set %s', change), format('a log may %s', what)) from step where allowed;

-- Columns that are set once.
create table pg_temp.record (id int, ended_at timestamptz, ended_by text, note jsonb);
create trigger guard_rows before update or delete on pg_temp.record
  for each row execute function oml.guard_set_once('ended_at', 'ended_by');
insert into pg_temp.record (id) values (1), (2), (3);
select lives_ok(format('update pg_temp.record set %s', change), format('%s is set', name))
from (values
  ('one column', 'ended_at = now() where id = 1'), ('another one later', 'ended_by = ''me'' where id = 1'),
  ('both at once', 'ended_at = now(), ended_by = ''me'' where id = 2')
) c (name, change);
select throws_ok(statement, 'OM060', null, format('%s is refused', statement))
from unnest(array[
  'update pg_temp.record set ended_by = ''you'' where id = 1', 'update pg_temp.record set ended_by = null where id = 1',
  'update pg_temp.record set ended_at = null, ended_by = null where id = 2', 'update pg_temp.record set ended_at = ended_at where id = 3',
  'update pg_temp.record set id = 4, ended_at = now() where id = 3', 'update pg_temp.record set note = ''null'' where id = 3',
  'update pg_temp.record set note = ''null'', ended_at = now() where id = 3', 'delete from pg_temp.record where id = 3'
]) as statement;

-- The outbox row hangs off the event in the same way.
set session_replication_role = replica;
set session authorization clerk;
select is((oml_append('invoice.exported', '{}')).seq, 10::bigint, 'an append under session_replication_role = replica');
reset session authorization;
reset session_replication_role;
select is(
  (select array_agg(chain_seq order by seq) from oml.outbox where tenant_id = :'globex'), array(select generate_series(1, 10))::bigint[],
  'queues its outbox row too'
);

select is(
  (select md5(string_agg(j::text, ',' order by j.event_id)) from oml.journal j where (tenant_id, seq) <> (:'globex', 10)),
  (select journal from digest), 'no event has changed'
);
select ok((select ok from oml_verify_chain('globex')), 'and the chain verifies');

select * from finish();
rollback;
