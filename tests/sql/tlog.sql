-- What the publisher asks the database: which chains have grown, what their entries are, what it recorded.
begin;
\ir shared/refused.sql
select plan(51);

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
reset session authorization;
-- What the key in force signs of a root, as oml.tlog_sign does where the transaction has written nothing.
create function pg_temp.signed(tenant_id uuid, size bigint, generation int default 1, root bytea default null) returns text
language sql
as $$
  select s.checkpoint
  from oml.chain_head h join oml.key k on k.kid = h.kid,
    oml.seal_checkpoint(
      (select value from oml.setting where name = 'signer'), k.kid, k.public_key, oml.deployment_id()::uuid, h.tenant_id, generation, size,
      coalesce(signed.root, (select r.root from oml.tlog_root(h.tenant_id, 1, size, false) r))
    ) s
  where h.tenant_id = signed.tenant_id
$$;
create function pg_temp.record(tenant_id uuid, size bigint, more text default '') returns text
language sql
as $$
  select format(
    'select oml.tlog_record(%L, 1, %s, %L, %L)', tenant_id, size, (select r.root from oml.tlog_root(tenant_id, 1, size, false) r),
    pg_temp.signed(tenant_id, size) || more
  )
$$;
select pg_temp.record(:'initech', 3) as three, pg_temp.record(:'initech', 2) as two, pg_temp.record(:'initech', 5) as five,
  pg_temp.record(:'initech', 3, E'\u2014 w.example AAAAAAAA\n') as cosigned, pg_temp.signed(:'initech', 3, 2) as elsewhere,
  pg_temp.signed(:'initech', 3, 1, sha256('other')) as forged, pg_temp.signed(:'initech', 3) as note,
  pg_temp.signed(:'initech', 3) || E'\u2014 w.example AAAAAAAA\n' as cosigned_note,
  (select r.root from oml.tlog_root(:'initech', 1, 3, false) r) as root \gset
set session authorization daemon;
select pg_temp.refused(
  format('select oml.tlog_record(%L, 1, 3, %L, %L)', :'initech', :'root', checkpoint), 'OM150',
  format('that is no checkpoint of the first 3 events of tenant %s: %s', :'initech', fault), 'Only what oml.tlog_sign returned%', what
)
from (values
  ('note 3', 'no signature lines follow the note''s text', 'what is no checkpoint is not recorded'),
  (:'elsewhere', 'it is of another log, size or root', 'nor one of another generation'),
  (:'forged', 'it is of another log, size or root', 'nor one of another root')
) c (checkpoint, fault, what);
select pg_temp.refused(
  format('select oml.tlog_record(%L, 1, 3, sha256(''other''), %L)', :'initech', :'forged'), 'OM150',
  format('that is no checkpoint of the first 3 events of tenant %s: the events have another root', :'initech'), '%',
  'nor is a root that the journal does not have, whoever signed it'
);
select pg_temp.refused(
  format('select oml.tlog_record(%L, 1, 6, %L, %L)', :'initech', :'root', :'note'), 'OM150',
  format('that is no checkpoint of the first 6 events of tenant %s: the chain has 5 events', :'initech'), '%', 'nor more events than there are'
);
select lives_ok(:'three', 'a checkpoint is recorded');
select results_eq(
  $$ select generation, head, size, root, checkpoint_hash, published_at is null from oml.tlog_heads() where tenant = 'initech' $$,
  format($$ values (1, 5::bigint, 3::bigint, %L::bytea, sha256(convert_to(%L, 'UTF8')), false) $$, :'root', :'note'), 'and read back'
);
select published_at as first_time from oml.tlog_heads() where tenant = 'initech' \gset
select lives_ok(:'cosigned', 'its cosigned form takes its place');
select results_eq(
  $$ select checkpoint_hash, published_at from oml.tlog_heads() where tenant = 'initech' $$,
  format($$ values (sha256(convert_to(%L, 'UTF8')), %L::timestamptz) $$, :'cosigned_note', :'first_time'), 'published when it was'
);
select lives_ok(:'two', 'a publisher that comes late');
select is((select size from oml.tlog_heads() where tenant = 'initech'), 3::bigint, 'does not take it back');
select lives_ok(:'five', 'the log grows');
select results_eq(
  format('select size from oml.tlog_changes(%s, %s) where tenant = %L', :'start', :'start'::bigint + 6, 'initech'),
  'values (5::bigint)', 'and the publisher is told how far it had come'
);
select pg_temp.refused(
  format('select oml.tlog_record(%L, 1, 1, %L, %L)', '01890a5d-ac96-774b-bcce-b302099a8057', :'root', :'note'), 'OM150',
  'that is no checkpoint of the first 1 events of tenant 01890a5d-ac96-774b-bcce-b302099a8057: the chain has 0 events', '%',
  'a tenant that there is not has no log'
);
select is((select nodes from oml.tlog_heads() where tenant = 'initech'), 0::bigint, 'of so few events no subtree is full');

-- Generations.
select is((select losses from oml.tlog_state()), 0::bigint, 'no loss was accepted');
reset session authorization;
update oml.tlog set generation = 3, size = 0, root = null, checkpoint = null, published_at = null where tenant_id = :'initech';
set session authorization daemon;
select is((select losses from oml.tlog_state()), 2::bigint, 'an accepted loss is counted');
select pg_temp.refused(
  :'five', 'OM151',
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
