-- Fence, step 3: WAL behind every row up to the limit. The caller sets synchronous_commit to the
-- deployment's level and must take a warning at COMMIT for a failure.
create function oml.lake_fence(upto bigint)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate');
  update oml.frontier f
  set
    fenced_seq = greatest(f.fenced_seq, least(upto, (select coalesce(max(o.seq), 0) from oml.outbox o))),
    fenced_at = clock_timestamp()
  where f.name = 'lake';
end
$$;
comment on function oml.lake_fence(bigint)
  is 'Write WAL behind every row up to a seq: step 3 of the fence. Needs operate on the provider.';
