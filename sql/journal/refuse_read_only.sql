create function oml.refuse_read_only()
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_is_in_recovery() then
    raise exception using
      errcode = 'OM050',
      message = 'this server is a standby: nothing can be appended here',
      hint = 'Connect to the primary, for example with target_session_attrs=read-write.';
  end if;
  raise exception using
    errcode = 'OM051',
    message = 'the transaction is read-only: nothing can be appended in it',
    hint = 'Begin it READ WRITE; check default_transaction_read_only.';
end
$$;
