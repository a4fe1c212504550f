-- Raises what an append gets that cannot follow the head it saw. No receipt is for an event that is not stored.
create function oml.refuse_stale()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using
    errcode = '40001',
    message = 'could not serialize access: the chain grew after this transaction''s snapshot',
    hint = 'Run the transaction again.';
end
$$;
