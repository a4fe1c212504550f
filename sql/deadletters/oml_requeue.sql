-- Queues again what was passed over. The new row stands for the version as it is now: so its event is the last one that
-- changed the version's state, and all dead letters of that version and target are settled by it. The tenant's chain is
-- locked before that event is looked up: no change of state can come between it and the row's number.
create function @extschema@.oml_requeue(outbox_seq bigint, reason text)
returns bigint
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  dead record;
  settled bigint[];
  last_seq bigint;
  queued bigint;
begin
  perform oml.require_operator();
  perform oml.require_reason(reason);
  select * into dead from oml.dead_letter d where d.outbox_seq = oml_requeue.outbox_seq;
  if not found then
    raise exception using
      errcode = 'OM241', message = format('there is no dead letter with outbox seq %s', oml_requeue.outbox_seq),
      hint = 'oml lake dead-letters lists them.';
  end if;
  perform oml.lock_chain(dead.tenant_id);
  perform oml.lock_provider();
  select d.requeued_seq into queued from oml.dead_letter d where d.outbox_seq = dead.outbox_seq;
  if queued is not null then
    return queued;
  end if;
  select max(j.seq) into last_seq
  from oml.artifact_event a
  join oml.journal j on j.tenant_id = a.tenant_id and j.seq = a.seq
  where a.tenant_id = dead.tenant_id and a.artifact_id = dead.artifact_id and j.artifact_version = dead.artifact_version
    and exists (select from oml.lifecycle() l where l.event_type = j.type);
  queued := oml.queue_again(dead.tenant_id, coalesce(last_seq, dead.chain_seq), dead.target);
  with changed as (
    update oml.dead_letter d set requeued_seq = queued, requeued_at = clock_timestamp()
    where d.tenant_id = dead.tenant_id and d.artifact_id = dead.artifact_id and d.artifact_version = dead.artifact_version
      and d.target = dead.target and d.requeued_seq is null
    returning d.outbox_seq
  )
  select array_agg(c.outbox_seq order by c.outbox_seq) into settled from changed c;
  perform oml.append_provider_event('lake.requeued', jsonb_build_object(
    'outbox_seqs', to_jsonb(settled), 'requeued_as', queued, 'target', dead.target, 'tenant_id', dead.tenant_id,
    'artifact_id', dead.artifact_id, 'version', dead.artifact_version, 'reason', oml_requeue.reason
  ));
  return queued;
end
$$;
comment on function @extschema@.oml_requeue(bigint, text)
  is 'Queue again what the lake writer passed over, with all dead letters of the same version and target, journalled on the provider chain; the new outbox seq. Needs operate on the provider.';
