-- A copy for proofs and lag. What is recorded never goes back, whoever of two publishers comes last; a
-- checkpoint that is cosigned later takes the place of its own.
create function oml.tlog_record(tenant_id uuid, generation int, size bigint, root bytea, checkpoint text)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  in_force int;
begin
  perform oml.require_provider('operate');
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
  if in_force <> generation then
    raise exception using
      errcode = 'OM151', message = format('generation %s of the log is in force, not %s', in_force, generation),
      hint = 'A loss was accepted meanwhile: publish in the new generation.';
  end if;
end
$$;
comment on function oml.tlog_record(uuid, int, bigint, bytea, text)
  is 'Record a chain''s published checkpoint; an older one changes nothing. Needs operate on the provider.';
