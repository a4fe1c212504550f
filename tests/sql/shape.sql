-- What the extension consists of, and what it leaves outside itself.
begin;
select * from no_plan();

create temporary table member as
select d.classid, d.objid from pg_depend d join pg_extension e on e.oid = d.refobjid
where e.extname = 'oml' and d.refclassid = 'pg_extension'::regclass and d.deptype = 'e';
create temporary table function as
select p.*, p.oid::regprocedure::text as signature, l.lanname as language
from member m join pg_proc p on p.oid = m.objid join pg_language l on l.oid = p.prolang
where m.classid = 'pg_proc'::regclass;
create temporary table data as
select c.* from pg_class c where c.relnamespace = 'oml'::regnamespace and c.relkind not in ('c', 'i');

-- The extension owns the code, and the data outlives it.
select set_eq(
  'select distinct classid::regclass::text from member', $$ values ('pg_proc'), ('pg_type') $$,
  'the members of the extension are functions and types'
);
select is_empty(
  $$ select pg_describe_object(classid, objid, 0) from member where classid in ('pg_class'::regclass, 'pg_namespace'::regclass) $$,
  'no table, sequence, index, view or schema is a member'
);
select is_empty(
  $$ select typname from member m join pg_type t on t.oid = m.objid and m.classid = 'pg_type'::regclass
     where t.typtype <> 'c' or exists (select from data where data.oid = t.typrelid) $$,
  'no table''s row type is a member either'
);
select set_eq(
  $$ select relname::text from data where relkind = 'r' $$,
  $$ values ('setting'), ('tenant'), ('chain_head'), ('membership'), ('event_type'), ('journal'), ('outbox'), ('entity'), ('frontier'), ('lake_table'), ('key'), ('impersonation'),
       ('instance'), ('gate'), ('accepted_loss'), ('tlog'), ('tlog_node'),
       ('workarea'), ('workarea_member'), ('artifact_version'), ('attachment'), ('derived_from'), ('served'), ('artifact_event'), ('dek'), ('body'), ('writer_envelope'), ('dead_letter'), ('lease') $$,
  'these are the tables of schema oml'
);
select set_eq(
  $$ select relname::text from data where relkind <> 'r' $$, $$ values ('chain_no'), ('outbox_seq') $$,
  'and these its sequences; there is nothing else'
);
select ok(
  (select r.rolsuper from pg_namespace n join pg_roles r on r.oid = n.nspowner where n.nspname = 'oml'),
  'schema oml belongs to a superuser'
);
select set_eq(
  $$ select signature from function where pronamespace <> 'oml'::regnamespace $$,
  $$ select oid::regprocedure::text from pg_proc where proname in (
       'oml_append', 'oml_verify_chain', 'oml_create_tenant', 'oml_grant', 'oml_revoke', 'oml_register_event_type',
       'oml_append_batch', 'oml_retire_event_type', 'oml_fold_check', 'oml_entity', 'oml_genesis', 'oml_configure', 'oml_attach', 'oml_use', 'oml_impersonate', 'oml_end_impersonation',
       'oml_issue_key', 'oml_retire_key', 'oml_keys', 'oml_rotate_signing_key',
       'oml_fork_check', 'oml_gate_status', 'oml_gate_accept_loss', 'oml_adopt', 'oml_requeue', 'oml_prove_inclusion',
       'oml_submit', 'oml_submit_sealed', 'oml_data_key', 'oml_my_submissions', 'oml_fetch', 'oml_workareas', 'oml_artifacts', 'oml_attachments', 'oml_history', 'oml_review_queue', 'oml_review_serve', 'oml_verdict', 'oml_create_workarea', 'oml_move_workarea', 'oml_add_member', 'oml_remove_member', 'oml_promote', 'oml_demote', 'oml_reassign', 'oml_end_simulation'
     ) $$,
  'outside schema oml there are the public functions alone'
);
select is_empty(
  $$ select signature from function where pronamespace <> 'oml'::regnamespace and proname !~ '^oml_' $$,
  'whose names begin with oml_'
);
select is_empty(
  $$ select p.oid::regprocedure from pg_proc p
     where (p.pronamespace = 'oml'::regnamespace or p.proname ~ '^oml_') and p.oid not in (select oid from function) $$,
  'no function of ours is left outside the extension'
);

-- Tables.
select is(pg_get_userbyid(relowner), 'oml_owner'::name, format('%s belongs to oml_owner', relname)) from data order by relname;
select ok(relrowsecurity and relforcerowsecurity, format('row-level security is enabled and forced on %s', relname))
from data where relkind = 'r' order by relname;
select isnt(obj_description(oid, 'pg_class'), null, format('table %s says what it is', relname))
from data where relkind = 'r' order by relname;
select isnt(col_description(d.oid, a.attnum), null, format('column %s.%s says what it is', d.relname, a.attname))
from data d join pg_attribute a on a.attrelid = d.oid and a.attnum > 0 and not a.attisdropped
where d.relkind = 'r' order by d.relname, a.attnum;
select is_empty(
  $$ select relname from data d where relkind = 'r' and not exists (select from pg_constraint c where c.conrelid = d.oid and c.contype = 'p') $$,
  'every table has a primary key'
);
select set_eq(
  $$ select relname::text from data where relpersistence <> 'p' and relkind = 'r' $$, $$ values ('gate') $$,
  'every table is logged but the gate, which a crash and a promotion must empty'
);
select set_eq(
  $$ select indexrelid::regclass::text from pg_index where indrelid = 'oml.journal'::regclass $$,
  $$ values ('oml.journal_pkey'), ('oml.journal_event_id_key'), ('oml.journal_idempotency_key') $$,
  'the journal has three indexes: chain, event id and idempotency key'
);
select is_empty(
  $$ select conname from pg_constraint c
     where c.contype = 'f' and c.confrelid in (select oid from data) and (c.confdeltype <> 'a' or c.confupdtype <> 'a') $$,
  'no foreign key deletes or updates rows by itself'
);
select is_empty(
  $$ select conname from pg_constraint c where c.contype = 'f' and 'oml.journal'::regclass in (c.conrelid, c.confrelid) $$,
  'no foreign key makes an append look at another table'
);

-- Guards.
create temporary table guard as
select t.*, t.tgrelid::regclass::text as table_name, t.tgfoid::regproc::text as function_name
from pg_trigger t where t.tgrelid in (select oid from data) and not t.tgisinternal;
select is(tgenabled, 'A'::"char", format('trigger %s of %s is ENABLE ALWAYS', tgname, table_name))
from guard where tgname <> 'guard_commit' order by table_name, tgname;
select is(tgenabled, 'D'::"char", 'in the local profile commits are not guarded') from guard where tgname = 'guard_commit';
select set_eq(
  $$ select table_name, tgname::text, function_name from guard $$,
  $$ values
    ('oml.journal', 'guard_rows', 'oml.guard_append_only'), ('oml.journal', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.journal', 'derive', 'oml.derive'), ('oml.setting', 'copy_settings', 'oml.copy_settings'),
    ('oml.journal', 'guard_commit', 'oml.guard_commit'),
    ('oml.entity', 'guard_rows', 'oml.guard_append_only'), ('oml.entity', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.entity', 'guard_entity', 'oml.guard_entity'),
    ('oml.outbox', 'guard_rows', 'oml.guard_append_only'), ('oml.outbox', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.chain_head', 'guard_rows', 'oml.guard_append_only'), ('oml.chain_head', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.chain_head', 'guard_rotation', 'oml.guard_columns'),
    ('oml.key', 'guard_rows', 'oml.guard_set_once'), ('oml.key', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.impersonation', 'guard_rows', 'oml.guard_set_once'), ('oml.impersonation', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.tenant', 'guard_rows', 'oml.guard_append_only'), ('oml.tenant', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.event_type', 'guard_rows', 'oml.guard_set_once'), ('oml.event_type', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.lake_table', 'guard_rows', 'oml.guard_append_only'), ('oml.lake_table', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.setting', 'guard_rows', 'oml.guard_append_only'), ('oml.setting', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.frontier', 'guard_rows', 'oml.guard_append_only'), ('oml.frontier', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.gate', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.instance', 'guard_rows', 'oml.guard_append_only'), ('oml.instance', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.accepted_loss', 'guard_rows', 'oml.guard_append_only'), ('oml.accepted_loss', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.tlog', 'guard_rows', 'oml.guard_append_only'), ('oml.tlog', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.tlog', 'guard_tlog', 'oml.guard_tlog'),
    ('oml.tlog_node', 'guard_rows', 'oml.guard_append_only'), ('oml.tlog_node', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.frontier', 'guard_forward', 'oml.guard_forward'),
    ('oml.workarea', 'guard_columns', 'oml.guard_columns'), ('oml.workarea', 'guard_rows', 'oml.guard_append_only'), ('oml.workarea', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.workarea_member', 'guard_columns', 'oml.guard_columns'), ('oml.workarea_member', 'guard_rows', 'oml.guard_append_only'), ('oml.workarea_member', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.artifact_version', 'guard_columns', 'oml.guard_columns'), ('oml.artifact_version', 'guard_rows', 'oml.guard_append_only'), ('oml.artifact_version', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.attachment', 'guard_rows', 'oml.guard_append_only'), ('oml.attachment', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.derived_from', 'guard_rows', 'oml.guard_append_only'), ('oml.derived_from', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.served', 'guard_columns', 'oml.guard_columns'), ('oml.served', 'guard_rows', 'oml.guard_append_only'), ('oml.served', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.artifact_event', 'guard_rows', 'oml.guard_append_only'), ('oml.artifact_event', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.lease', 'guard_term', 'oml.guard_term'), ('oml.lease', 'guard_rows', 'oml.guard_append_only'), ('oml.lease', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.dead_letter', 'guard_rows', 'oml.guard_set_once'), ('oml.dead_letter', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.dek', 'guard_rows', 'oml.guard_append_only'), ('oml.dek', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.body', 'guard_rows', 'oml.guard_append_only'), ('oml.body', 'guard_truncate', 'oml.guard_append_only'),
    ('oml.writer_envelope', 'guard_rows', 'oml.guard_append_only'), ('oml.writer_envelope', 'guard_truncate', 'oml.guard_append_only'), ('oml.membership', 'guard_truncate', 'oml.guard_append_only') $$,
  'these triggers stand on the tables and no other'
);

-- Numbers of the outbox.
select results_eq(
  $$ select seqcache, seqincrement, seqcycle, seqmin from pg_sequence where seqrelid = 'oml.outbox_seq'::regclass $$,
  'values (1::bigint, 1::bigint, false, 1::bigint)',
  'outbox seqs are drawn one by one and never again'
);
select is(
  (select pg_get_expr(adbin, adrelid) from pg_attrdef where adrelid = 'oml.outbox'::regclass), 'oml.draw_outbox_seq()',
  'by the function that takes the xid first'
);

-- Functions. A SET clause is dear, so what runs at each append or submission has that of its caller.
create temporary table unpinned as
select unnest('{open_chain,seal,seal_artifact,guard_entity,caller,find_workarea,seal_parts,store_submission,kek_in_use}'::name[]) as proname;
select matches(
  array_to_string(proconfig, ' '), '(^| )search_path=pg_catalog, pg_temp( |$)', format('the search_path of %s is pinned, pg_temp last', signature)
)
from function where proname not in (select proname from unpinned) order by signature;
select is_empty(
  $$ select f.signature from function f, aclexplode(f.proacl) a
     where (f.proconfig is null and (f.prosecdef or f.proname not in (select proname from unpinned)))
       or (f.proconfig is null and a.grantee not in ('oml_kernel'::regrole, 'oml_owner'::regrole)) $$,
  'the others run inside those alone: their owner calls them, and a trigger of its tables'
);
select set_has(
  'values (''oml_owner''::name), (''oml_kernel''), (''oml_fleet'')', 'select pg_get_userbyid(proowner) from function',
  'every function belongs to one of the three owners'
);
select is_empty(
  $$ select signature from function where proacl is null or exists (select from aclexplode(proacl) where grantee = 0) $$,
  'no function is executable by PUBLIC'
);
select is_empty(
  $$ select signature from function f, aclexplode(f.proacl) a where a.is_grantable and a.grantee <> f.proowner $$,
  'nobody may grant a function on'
);
select set_eq(
  $$ select proname::text, pg_get_userbyid(proowner)::text from function where prosecdef $$,
  $$ values
    ('oml_append', 'oml_kernel'), ('oml_append_batch', 'oml_kernel'), ('oml_use', 'oml_kernel'),
    ('oml_issue_key', 'oml_fleet'), ('oml_retire_key', 'oml_fleet'), ('oml_keys', 'oml_fleet'), ('begin_rotation', 'oml_fleet'), ('lock_provider', 'oml_fleet'), ('operator', 'oml_fleet'),
    ('oml_impersonate', 'oml_fleet'), ('oml_end_impersonation', 'oml_fleet'), ('impersonated', 'oml_fleet'), ('oml_rotate_signing_key', 'oml_owner'),
    ('append_own_event', 'oml_kernel'), ('copy_settings', 'oml_fleet'), ('require_audit', 'oml_kernel'),
    ('require_provider', 'oml_kernel'), ('deployment_id', 'oml_kernel'),
    ('oml_create_tenant', 'oml_fleet'), ('oml_grant', 'oml_fleet'), ('oml_revoke', 'oml_fleet'),
    ('oml_register_event_type', 'oml_fleet'), ('oml_retire_event_type', 'oml_fleet'), ('oml_fold_check', 'oml_fleet'),
    ('oml_entity', 'oml_kernel'), ('oml_verify_chain', 'oml_fleet'), ('chain_rows', 'oml_fleet'),
    ('known_heads', 'oml_fleet'), ('lake_cut_limit', 'oml_fleet'), ('lake_cut_holders', 'oml_fleet'),
    ('lake_fence', 'oml_fleet'), ('lake_batch_end', 'oml_fleet'), ('lake_batch', 'oml_fleet'), ('lake_rows', 'oml_fleet'), ('lake_state', 'oml_fleet'),
    ('lake_outbox_row', 'oml_fleet'), ('lake_advance', 'oml_fleet'), ('lake_tables', 'oml_fleet'),
    ('lake_record_table', 'oml_fleet'), ('lake_unqueued', 'oml_fleet'), ('durability', 'oml_fleet'), ('kek_faults', 'oml_fleet'),
    ('oml_fork_check', 'oml_fleet'), ('oml_gate_status', 'oml_fleet'), ('oml_gate_accept_loss', 'oml_fleet'), ('oml_adopt', 'oml_fleet'), ('oml_requeue', 'oml_fleet'), ('queue_again', 'oml_kernel'), ('lease_take', 'oml_fleet'), ('lease_release', 'oml_fleet'), ('leases', 'oml_fleet'), ('lake_bodies', 'oml_fleet'), ('lake_body', 'oml_fleet'), ('bodies_state', 'oml_fleet'), ('bodies_advance', 'oml_fleet'), ('lake_skip', 'oml_fleet'), ('lake_dead_letters', 'oml_fleet'), ('lake_claims', 'oml_fleet'), ('lake_attachments', 'oml_fleet'),
    ('gate_open', 'oml_fleet'), ('open_gate', 'oml_fleet'), ('open_gate_alone', 'oml_fleet'),
    ('lake_lost', 'oml_fleet'), ('lake_queued', 'oml_fleet'), ('accepted_losses', 'oml_fleet'),
    ('tlog_state', 'oml_fleet'), ('tlog_heads', 'oml_fleet'), ('tlog_keys', 'oml_fleet'), ('tlog_changes', 'oml_fleet'),
    ('tlog_entries', 'oml_fleet'), ('tlog_advance', 'oml_fleet'), ('tlog_record', 'oml_fleet'),
    ('tlog_sign', 'oml_fleet'), ('oml_prove_inclusion', 'oml_fleet'),
        ('oml_submit', 'oml_kernel'), ('oml_submit_sealed', 'oml_kernel'), ('oml_data_key', 'oml_kernel'), ('oml_my_submissions', 'oml_kernel'), ('oml_fetch', 'oml_kernel'), ('oml_workareas', 'oml_kernel'), ('oml_artifacts', 'oml_kernel'), ('oml_attachments', 'oml_kernel'), ('oml_history', 'oml_kernel'), ('oml_review_queue', 'oml_kernel'), ('oml_review_serve', 'oml_kernel'), ('oml_verdict', 'oml_kernel'), ('oml_create_workarea', 'oml_kernel'), ('oml_move_workarea', 'oml_kernel'), ('oml_add_member', 'oml_kernel'), ('oml_remove_member', 'oml_kernel'), ('oml_promote', 'oml_kernel'), ('oml_demote', 'oml_kernel'), ('oml_reassign', 'oml_kernel'), ('oml_end_simulation', 'oml_kernel'),
    ('oml_genesis', 'oml_owner'), ('oml_configure', 'oml_owner'), ('oml_attach', 'oml_owner'), ('attach', 'oml_owner') $$,
  'these functions act with their owner''s powers and no other'
);
select is_empty(
  $$ select signature from function f cross join unnest(array['oml_writer', 'oml_reviewer', 'oml_operator', 'oml_auditor', 'oml_daemon']) role_name
     where language = 'plpython3u' and has_function_privilege(role_name, f.oid, 'execute') $$,
  'no group role may call a Python function'
);
select set_eq(
  $$ select proname::text from function where language = 'plpython3u' $$,
  $$ values ('load_core'), ('read_signer'), ('seal'), ('seal_batch'), ('seal_artifact'), ('seal_parts'), ('open_parts'), ('check_parts'), ('make_data_key'), ('writer_kid'), ('writer_fault'), ('prove_chain'), ('fork_faults'), ('checked_alone'), ('seal_checkpoint'), ('prove_inclusion'), ('tlog_root'), ('checkpoint_fault'), ('schema_fault'), ('schema_violations') $$, 'these are all the Python functions there are'
);
select is_empty(
  $$ select signature from function where prosecdef and language = 'plpython3u' $$, 'none of them changes whose powers it acts with'
);
select set_eq(
  $$ select proname::text, provolatile::text from function where provolatile <> 'v' $$,
  $$ values ('lifecycle', 'i'), ('is_released', 'i'), ('admission_item', 'i'), ('kek_epoch', 'i'), ('body_limits', 'i'), ('submission_digest', 'i'),
       ('folded_admission', 's'), ('replayed_admission', 's') $$,
  'every function looks at the database anew, but those that look at nothing and the two that a check has in one snapshot'
);
select is_empty($$ select signature from function where proparallel <> 'u' $$, 'none runs in a parallel worker');
select isnt(obj_description(oid, 'pg_proc'), null, format('%s says what it does', signature))
from function where pronamespace <> 'oml'::regnamespace order by signature;
select isnt(obj_description(t.oid, 'pg_type'), null, format('type %s says what it is', t.typname))
from member m join pg_type t on t.oid = m.objid and m.classid = 'pg_type'::regclass
where t.typtype = 'c' order by t.typname;

-- Roles.
select ok(
  not (rolcanlogin or rolsuper or rolbypassrls or rolcreaterole or rolcreatedb or rolreplication),
  format('%s cannot log in and has no power over the cluster', rolname)
)
from pg_roles
where rolname in ('oml_owner', 'oml_kernel', 'oml_fleet', 'oml_writer', 'oml_reviewer', 'oml_operator', 'oml_auditor', 'oml_daemon')
order by rolname;
select is_empty(
  $$ select m.roleid::regrole, m.member::regrole from pg_auth_members m
     where m.roleid in ('oml_owner'::regrole, 'oml_kernel'::regrole, 'oml_fleet'::regrole)
       or m.member in ('oml_owner'::regrole, 'oml_kernel'::regrole, 'oml_fleet'::regrole) $$,
  'the three owners have no members and are members of nothing'
);
select is_empty(
  $$ select m.roleid::regrole, m.member::regrole from pg_auth_members m
     where m.member in ('oml_writer'::regrole, 'oml_reviewer'::regrole, 'oml_operator'::regrole, 'oml_auditor'::regrole, 'oml_daemon'::regrole) $$,
  'no group role is a member of another role'
);
select is_empty(
  $$ select d.classid::regclass, d.objid, d.refobjid::regrole from pg_shdepend d
     where d.deptype = 'o' and d.refclassid = 'pg_authid'::regclass
       and d.refobjid in ('oml_writer'::regrole, 'oml_reviewer'::regrole, 'oml_operator'::regrole, 'oml_auditor'::regrole, 'oml_daemon'::regrole) $$,
  'no group role owns anything'
);

select * from finish();
rollback;
