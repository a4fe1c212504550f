-- Every trigger of ours is ENABLE ALWAYS, but for guard_commit in the local profile. That after an insert
-- sees what it inserted as appended.
create function oml.attach_guards()
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
declare
  guard record;
begin
  for guard in
    select * from (values
      ('journal', 'guard_rows', 'before update or delete', 'row', 'guard_append_only'),
      ('journal', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('journal', 'derive', 'after insert', 'statement', 'derive'),
      ('outbox', 'guard_rows', 'before update or delete', 'row', 'guard_append_only'),
      ('outbox', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('chain_head', 'guard_rotation', 'before update', 'row', 'guard_columns(''kid'')'),
      ('chain_head', 'guard_rows', 'before delete', 'row', 'guard_append_only'),
      ('chain_head', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('tenant', 'guard_rows', 'before update or delete', 'row', 'guard_append_only'),
      ('tenant', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('event_type', 'guard_rows', 'before update or delete', 'row', 'guard_set_once(''retired_at'')'),
      ('event_type', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('key', 'guard_rows', 'before update or delete', 'row', 'guard_set_once(''retired_seq'')'),
      ('key', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('impersonation', 'guard_rows', 'before update or delete', 'row', 'guard_set_once(''ended_at'')'),
      ('impersonation', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('entity', 'guard_entity', 'before update', 'row', 'guard_entity'),
      ('entity', 'guard_rows', 'before delete', 'row', 'guard_append_only'),
      ('entity', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('lake_table', 'guard_rows', 'before delete', 'row', 'guard_append_only'),
      ('lake_table', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('setting', 'guard_rows', 'before delete', 'row', 'guard_append_only'),
      ('setting', 'copy_settings', 'after insert or update or delete', 'statement', 'copy_settings'),
      ('setting', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('frontier', 'guard_forward', 'before update', 'row', 'guard_forward'),
      ('frontier', 'guard_rows', 'before delete', 'row', 'guard_append_only'),
      ('frontier', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('gate', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('instance', 'guard_rows', 'before delete', 'row', 'guard_append_only'),
      ('instance', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('accepted_loss', 'guard_rows', 'before update or delete', 'row', 'guard_append_only'),
      ('accepted_loss', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('lease', 'guard_term', 'before update', 'row', 'guard_term'),
      ('lease', 'guard_rows', 'before delete', 'row', 'guard_append_only'),
      ('lease', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('dead_letter', 'guard_rows', 'before update or delete', 'row', 'guard_set_once(''requeued_seq'', ''requeued_at'')'),
      ('dead_letter', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('tlog', 'guard_tlog', 'before update', 'row', 'guard_tlog'),
      ('tlog', 'guard_rows', 'before delete', 'row', 'guard_append_only'),
      ('tlog', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('tlog_node', 'guard_rows', 'before update or delete', 'row', 'guard_append_only'),
      ('tlog_node', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('workarea', 'guard_columns', 'before update', 'row', 'guard_columns(''path'', ''last_seq'')'),
      ('workarea', 'guard_rows', 'before delete', 'row', 'guard_append_only'),
      ('workarea', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('workarea_member', 'guard_columns', 'before update', 'row', 'guard_columns(''is_member'', ''last_seq'')'),
      ('workarea_member', 'guard_rows', 'before delete', 'row', 'guard_append_only'),
      ('workarea_member', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('artifact_version', 'guard_columns', 'before update', 'row', 'guard_columns(''workarea_id'', ''state'', ''state_seq'', ''reviewer'', ''reason'')'),
      ('artifact_version', 'guard_rows', 'before delete', 'row', 'guard_append_only'),
      ('artifact_version', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('served', 'guard_columns', 'before update', 'row', 'guard_columns(''served_seq'')'),
      ('served', 'guard_rows', 'before delete', 'row', 'guard_append_only'),
      ('served', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('attachment', 'guard_rows', 'before update or delete', 'row', 'guard_append_only'),
      ('attachment', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('derived_from', 'guard_rows', 'before update or delete', 'row', 'guard_append_only'),
      ('derived_from', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('artifact_event', 'guard_rows', 'before update or delete', 'row', 'guard_append_only'),
      ('artifact_event', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('dek', 'guard_rows', 'before update or delete', 'row', 'guard_append_only'),
      ('dek', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('body', 'guard_rows', 'before update or delete', 'row', 'guard_append_only'),
      ('body', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('writer_envelope', 'guard_rows', 'before update or delete', 'row', 'guard_append_only'),
      ('writer_envelope', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only'),
      ('membership', 'guard_truncate', 'before truncate', 'statement', 'guard_append_only')
    ) as g (table_name, name, event, level, function)
  loop
    execute format(
      'create or replace trigger %I %s on oml.%I %s for each %s execute function oml.%s',
      guard.name, guard.event, guard.table_name,
      case guard.event when 'after insert' then 'referencing new table as appended' end, guard.level,
      case when guard.function like '%(%' then guard.function else guard.function || '()' end
    );
    execute format('alter table oml.%I enable always trigger %I', guard.table_name, guard.name);
  end loop;
  update oml.setting s set value = s.value where false;  -- and so copy_settings copies what changed without it
  -- Deferred, which only a constraint trigger can be. Enabled in the production profile alone: elsewhere even
  -- its condition would cost every append.
  drop trigger if exists guard_commit on oml.journal;
  create constraint trigger guard_commit after insert on oml.journal deferrable initially deferred
    for each row execute function oml.guard_commit();
  perform oml.switch_guard_commit((select s.value from oml.setting s where s.name = 'profile'));
end
$$;
