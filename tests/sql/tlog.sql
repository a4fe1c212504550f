-- What the publisher asks the database: which chains have grown, what their entries are, what it recorded.
begin;
\ir shared/refused.sql
select plan(40);

create role clerk login in role oml_writer;
create role daemon login in role oml_daemon;
select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
select oml_grant('clerk', 'globex');
select oml_grant('clerk', 'initech');
select oml_grant('daemon', 'provider', '{operate}');
select oml_register_event_type('invoice.exported');
select max(seq) as start from oml.outbox \gset
set session authorization clerk;
select oml_append('invoice.exported', '{}', tenant => case i % 3 when 0 then 'globex' else 'initech' end) from generate_series(1, 6) i;
reset session authorization;
select value as deployment from oml.setting where name = 'deployment_id' \gset
set session authorization daemon;

-- The chains that have grown.
select results_eq(
  format('select * from oml.tlog_changes(%s, %s)', :'start', :'start'::bigint + 6),
  format($$ values (%L::uuid, 'globex', 1, 3::bigint, 0::bigint), (%L, 'initech', 1, 5, 0) $$, :'globex', :'initech'),
  'a range of the outbox names each chain in it once, with its last event'
);
select results_eq(
  format('select tenant, last_seq from oml.tlog_changes(%s, %s)', :'start'::bigint + 1, :'start'::bigint + 3),
  $$ values ('globex', 2::bigint), ('initech', 3) $$, 'it begins behind its first bound and ends with its last'
);
select is_empty(format('select from oml.tlog_changes(%s, %s)', :'start'::bigint + 6, :'start'::bigint + 99), 'where nothing is there nothing has grown');

-- The entries.
reset session authorization;
create temporary table expected as select tenant_id, seq, sha256(envelope) as entry from oml.journal;
grant select on expected to daemon;
set session authorization daemon;
select results_eq(
  format('select * from oml.tlog_entries(%L, 0, 100)', :'initech'),
  format('select seq, entry from expected where tenant_id = %L order by seq', :'initech'), 'the entries are the hashes of the envelopes'
);
select results_eq(
  format('select seq from oml.tlog_entries(%L, 2, 2)', :'initech'), 'values (3::bigint), (4)', 'a page of them follows a seq'
);
select is_empty(format('select from oml.tlog_entries(%L, 5, 10)', :'initech'), 'after the last event there is none');
select is_empty('select from oml.tlog_entries(gen_random_uuid(), 0, 10)', 'nor of a tenant that there is not');

-- What is recorded.
select results_eq(
  $$ select tenant, generation, head, size, root, published_at, checkpoint_hash, nodes from oml.tlog_heads() where tenant <> 'provider' and tenant <> 'acme' $$,
  $$ values ('globex', 1, 3::bigint, 0::bigint, null::bytea, null::timestamptz, null::bytea, 0::bigint), ('initech', 1, 5, 0, null, null, null, 0) $$,
  'before the first publication each chain has a head and no log'
);
select is((select tenant from oml.tlog_heads() limit 1), 'provider', 'the provider comes first');
select lives_ok(format('select oml.tlog_record(%L, 1, 3, sha256(%L), %L)', :'initech', '3', 'note 3'), 'a checkpoint is recorded');
select results_eq(
  $$ select generation, head, size, root, checkpoint_hash, published_at is null from oml.tlog_heads() where tenant = 'initech' $$,
  $$ values (1, 5::bigint, 3::bigint, sha256('3'), sha256('note 3'), false) $$, 'and read back'
);
select published_at as first_time from oml.tlog_heads() where tenant = 'initech' \gset
select lives_ok(format('select oml.tlog_record(%L, 1, 3, sha256(%L), %L)', :'initech', '3', 'note 3, cosigned'), 'its cosigned form takes its place');
select results_eq(
  $$ select checkpoint_hash, published_at from oml.tlog_heads() where tenant = 'initech' $$,
  format($$ values (sha256('note 3, cosigned'), %L::timestamptz) $$, :'first_time'), 'published when it was'
);
select lives_ok(format('select oml.tlog_record(%L, 1, 2, sha256(%L), %L)', :'initech', '2', 'note 2'), 'a publisher that comes late');
select is((select size from oml.tlog_heads() where tenant = 'initech'), 3::bigint, 'does not take it back');
select pg_temp.refused(
  format('select oml.tlog_record(%L, 1, 3, sha256(%L), %L)', :'initech', 'other', 'note'), 'OM150',
  format('the log of tenant %s may not go from 3 events in generation 1 to 3 in generation 1, or to another root', :'initech'),
  '%compare the tiles with the journal%', 'another root at the same size'
);
select lives_ok(format('select oml.tlog_record(%L, 1, 5, sha256(%L), %L)', :'initech', '5', 'note 5'), 'the log grows');
select results_eq(
  format('select size from oml.tlog_changes(%s, %s) where tenant = %L', :'start', :'start'::bigint + 6, 'initech'),
  'values (5::bigint)', 'and the publisher is told how far it had come'
);
select throws_ok(
  'select oml.tlog_record(gen_random_uuid(), 1, 1, sha256(''1''), ''note'')', '23503', null, 'a tenant that there is not has no log'
);

-- Subtrees.
select lives_ok(
  format('select oml.tlog_record_nodes(%L, 1, 1, 7, sha256(%L) || sha256(%L))', :'initech', 'a', 'b'), 'subtrees side by side are cached'
);
select lives_ok(
  format('select oml.tlog_record_nodes(%L, 1, 1, 8, sha256(%L) || sha256(%L))', :'initech', 'b', 'c'), 'once'
);
select is((select nodes from oml.tlog_heads() where tenant = 'initech'), 3::bigint, 'and counted');
reset session authorization;
select results_eq(
  'select level, n, hash from oml.tlog_node order by n',
  $$ values (1, 7::bigint, sha256('a')), (1, 8, sha256('b')), (1, 9, sha256('c')) $$, 'each under its position'
);
set session authorization daemon;

-- Generations.
select is((select losses from oml.tlog_state()), 0::bigint, 'no loss was accepted');
reset session authorization;
update oml.tlog set generation = 3, size = 0, root = null, checkpoint = null, published_at = null where tenant_id = :'initech';
set session authorization daemon;
select is((select losses from oml.tlog_state()), 2::bigint, 'an accepted loss is counted');
select pg_temp.refused(
  format('select oml.tlog_record(%L, 1, 9, sha256(%L), %L)', :'initech', '9', 'note 9'), 'OM151',
  'generation 3 of the log is in force, not 1', '%publish in the new generation%', 'a checkpoint of an earlier generation'
);
select results_eq(
  $$ select generation, size, nodes from oml.tlog_heads() where tenant = 'initech' $$, 'values (3, 0::bigint, 0::bigint)',
  'the next generation begins with nothing'
);

-- The frontier, which is not the lake's.
select lives_ok(format('select oml.tlog_advance(%s)', :'start'::bigint + 4), 'the frontier advances');
select lives_ok(format('select oml.tlog_advance(%s)', :'start'::bigint + 2), 'a publisher that comes late');
select is((select frontier from oml.tlog_state()), :'start'::bigint + 4, 'does not move it back');
select is((select frontier from oml.lake_state()), 0::bigint, 'and the lake''s stays');
select pg_temp.refused(
  format('select oml.tlog_advance(%s)', :'start'::bigint + 7), 'OM152',
  format('the tlog''s frontier may not go to %s, past the end of the outbox', :'start'::bigint + 7), 'Rows that come later%',
  'a frontier past the outbox'
);
reset session authorization;
select results_eq(
  'select deployment_id, tlog_url, fence_synchronous_commit, outbox_max from oml.tlog_state()',
  format(
    $$ select %L::uuid, (select value from oml.setting where name = 'tlog_url'), 'on', %s::bigint $$, :'deployment', :'start'::bigint + 6
  ),
  'the state names the deployment and where its logs are'
);
select oml_issue_key(sha256('standby'), 'signing');
select results_eq(
  'select oml.tlog_keys()', $$ select public_key from oml.key where purpose = 'root' $$, 'a key that is only issued signs no checkpoint'
);

select * from finish();
rollback;
