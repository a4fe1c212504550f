-- Runs at COMMIT, or PREPARE, of a transaction that appended in the production profile: whoever lowered
-- synchronous_commit after the append is refused. That is against accident: SET CONSTRAINTS … IMMEDIATE
-- runs it early, and what lowers it later still is seen by nobody.
create function oml.guard_commit()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('synchronous_commit') in ('off', 'local') then
    raise exception using
      errcode = 'OM182',
      message = format('synchronous_commit was lowered to %s after an append', current_setting('synchronous_commit')),
      hint = 'The production profile asks for remote_write or more to the end of the transaction.';
  end if;
  return null;
end
$$;
