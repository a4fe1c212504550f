-- Passes over an outbox row that cannot be applied: the event that says so and the row of oml.dead_letter are one
-- transaction, and a second call changes nothing. From then on whatever reads the outbox leaves the row out, so
-- a batch that is built again after a crash is built without it.
create function oml.lake_skip(outbox_seq bigint, reason text, attempts int)
returns bigint
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  due record;
  skipped bigint;
begin
  perform oml.require_provider('operate');
  perform oml.lock_provider();  -- of two writers the second finds what the first has done
  select d.skipped_seq into skipped from oml.dead_letter d where d.outbox_seq = lake_skip.outbox_seq;
  if found then
    return skipped;
  end if;
  select o.tenant_id, o.chain_seq, o.target, j.artifact_id, j.artifact_version into due
  from oml.outbox o join oml.journal j on j.tenant_id = o.tenant_id and j.seq = o.chain_seq
  where o.seq = lake_skip.outbox_seq;
  if due.artifact_id is null or due.artifact_version is null or due.target = 'bronze.events' then
    raise exception using
      errcode = 'OM240', message = format('outbox row %s cannot be passed over', lake_skip.outbox_seq),
      hint = 'Only what is derived of an artifact''s content may be: an event that does not reach bronze.events stops the lake writer.';
  end if;
  skipped := (oml.append_provider_event('lake.materialize-skipped', jsonb_build_object(
    'outbox_seq', lake_skip.outbox_seq, 'target', due.target, 'tenant_id', due.tenant_id, 'seq', due.chain_seq,
    'artifact_id', due.artifact_id, 'version', due.artifact_version, 'reason', lake_skip.reason, 'attempts', lake_skip.attempts
  ))).seq;
  insert into oml.dead_letter (outbox_seq, tenant_id, chain_seq, target, artifact_id, artifact_version, reason, attempts, skipped_seq)
  values (lake_skip.outbox_seq, due.tenant_id, due.chain_seq, due.target, due.artifact_id, due.artifact_version, lake_skip.reason, lake_skip.attempts, skipped);
  return skipped;
end
$$;
comment on function oml.lake_skip(bigint, text, int)
  is 'Pass over an outbox row that cannot be applied, journalled on the provider chain; the seq of that event. Needs operate on the provider.';
