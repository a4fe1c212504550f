-- What every admin verb asks first: a transaction that can write, and operate on the provider.
create function oml.require_operator()
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('transaction_read_only')::bool then
    perform oml.refuse_read_only();
  end if;
  perform oml.require_provider('operate');
end
$$;
