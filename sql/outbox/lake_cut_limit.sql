-- Fence, step 1: the highest outbox seq visible now.
create function oml.lake_cut_limit()
returns bigint
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate');
  if (select s.seqcache <> 1 or s.seqincrement <> 1 or s.seqcycle from pg_sequence s where s.seqrelid = 'oml.outbox_seq'::regclass) then
    raise exception using
      errcode = 'OM062',
      message = 'sequence oml.outbox_seq does not have CACHE 1, INCREMENT 1, NO CYCLE',
      hint = 'A cached number would appear below the cut and be lost: alter sequence oml.outbox_seq cache 1 increment 1 no cycle.';
  end if;
  return (select coalesce(max(o.seq), 0) from oml.outbox o);
end
$$;
comment on function oml.lake_cut_limit()
  is 'Highest outbox seq visible now: step 1 of the fence. Needs operate on the provider.';
