create function oml.lake_queued(target text, after_seq bigint, upto bigint)
returns bigint
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate', 'audit');
  return (
    select count(*) from oml.outbox o
    where o.target = lake_queued.target and o.seq > after_seq and o.seq <= upto
  );
end
$$;
comment on function oml.lake_queued(text, bigint, bigint)
  is 'How many rows of one target the outbox has in a range of seqs. Needs operate or audit on the provider.';
