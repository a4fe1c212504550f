-- Locks every chain, those of tenants in chain_no order and the provider's last, and returns the kid in
-- force. Appends wait meanwhile, so all of it has five seconds, however many chains somebody holds.
create function oml.lock_chains()
returns bytea
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
declare
  until timestamptz := clock_timestamp() + interval '5 seconds';
  kid bytea;
  chain record;
begin
  -- Twice: tenants that were created while the provider's row was waited for come with the second.
  for turn in 1 .. 2 loop
    for chain in select h.tenant_id from oml.chain_head h where h.chain_no > 0 order by h.chain_no loop
      perform oml.lock_timeout_until(until);
      perform oml.lock_chain(chain.tenant_id);
    end loop;
    perform oml.lock_timeout_until(until);
    kid := oml.lock_provider();
  end loop;
  return kid;
exception when lock_not_available then
  raise exception using
    errcode = 'OM119', message = 'a transaction holds a chain: nothing was changed',
    hint = 'It appended and has not ended for 5 s. Look for it in pg_stat_activity (idle in transaction) or pg_prepared_xacts, then try again.';
end
$$;
