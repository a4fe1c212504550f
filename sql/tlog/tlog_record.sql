-- A copy for proofs and lag. Nothing is believed: the checkpoint must be one that this database could have
-- signed of its own events. What is recorded never goes back, whoever of two publishers comes last; a
-- checkpoint that is cosigned later takes the place of its own.
create function oml.tlog_record(tenant_id uuid, generation int, size bigint, root bytea, checkpoint text)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  log record;
  made record;
  fault text;
  in_force int;
begin
  perform oml.require_provider('operate');
  select coalesce(t.generation, 1) as generation, coalesce(t.size, 0) as size,
    (select coalesce(max(j.seq), 0) from oml.journal j where j.tenant_id = tlog_record.tenant_id) as last
  into log
  from (values (tlog_record.tenant_id)) n (tenant_id)
  left join oml.tlog t on t.tenant_id = n.tenant_id;
  in_force := log.generation;
  if in_force is not distinct from generation then
    if size < log.size then
      return;
    end if;
    if (size between 1 and log.last) is not true then
      fault := format('the chain has %s events', log.last);
    else
      fault := oml.checkpoint_fault(
        checkpoint, (select s.value from oml.setting s where s.name = 'deployment_id')::uuid,
        tlog_record.tenant_id, tlog_record.generation, tlog_record.size, tlog_record.root, array(select oml.tlog_keys())
      );
    end if;
    if fault is null then
      select r.* into made from oml.tlog_root(tenant_id, generation, size, size = log.size) r;
      if made.root is distinct from tlog_record.root then
        fault := coalesce(made.refusal, 'the events have another root');
      end if;
    end if;
    if fault is not null then
      raise exception using
        errcode = 'OM150', message = format('that is no checkpoint of the first %s events of tenant %s: %s', size, tenant_id, fault),
        hint = 'Only what oml.tlog_sign returned is recorded. Run oml verify, and compare the tiles with the journal.';
    end if;
    insert into oml.tlog as t (tenant_id, generation, size, root, checkpoint, published_at)
    values (
      tlog_record.tenant_id, tlog_record.generation, tlog_record.size, tlog_record.root, tlog_record.checkpoint,
      clock_timestamp()
    )
    on conflict on constraint tlog_pkey do update
    set
      size = excluded.size, root = excluded.root, checkpoint = excluded.checkpoint,
      published_at = case t.size when excluded.size then t.published_at else excluded.published_at end
    where t.generation = excluded.generation and t.size <= excluded.size
      and (t.size, t.root, t.checkpoint) is distinct from (excluded.size, excluded.root, excluded.checkpoint);
    select t.generation into in_force from oml.tlog t where t.tenant_id = tlog_record.tenant_id;
  end if;
  if in_force is distinct from generation then
    raise exception using
      errcode = 'OM151', message = format('generation %s of the log is in force, not %s', in_force, generation),
      hint = 'A loss was accepted meanwhile: publish in the new generation.';
  end if;
end
$$;
comment on function oml.tlog_record(uuid, int, bigint, bytea, text)
  is 'Record a chain''s published checkpoint, once it is verified and its root computed; an older one changes nothing. Needs operate on the provider.';
