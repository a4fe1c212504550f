-- The stored bytes of one part that an outbox row queues for the object store; null for one that is not stored.
-- What was never released is given to nobody by this way.
create function oml.lake_body(outbox_seq bigint, part int)
returns bytea
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform oml.require_provider('operate');
  return (
    select b.ciphertext
    from oml.outbox o
    join oml.journal e on e.tenant_id = o.tenant_id and e.seq = o.chain_seq
    join oml.body b on b.tenant_id = e.tenant_id and b.artifact_id = e.artifact_id and b.version = e.artifact_version
    where o.seq = lake_body.outbox_seq and o.target = 'bodies' and b.part = lake_body.part
      and oml.was_released(e.tenant_id, e.artifact_id, e.artifact_version, e.seq)
  );
end
$$;
comment on function oml.lake_body(bigint, int)
  is 'Stored bytes of one part of a released version that an outbox row queues for the object store. Needs operate on the provider.';
