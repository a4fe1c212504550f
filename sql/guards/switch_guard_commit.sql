-- Enables the guard of commits for the production profile, and disables it for another. That waits for
-- whoever has appended, and every append waits behind it: so not for long. A trigger that waits for the
-- commit cannot be switched: so of what was appended before in this transaction it is asked now.
create function oml.switch_guard_commit(profile text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
begin
  set constraints oml.guard_commit immediate;
  set constraints oml.guard_commit deferred;
  if profile = 'production' then
    alter table oml.journal enable always trigger guard_commit;
  else
    alter table oml.journal disable trigger guard_commit;
  end if;
exception when lock_not_available then
  raise exception using
    errcode = 'OM183', message = 'a transaction has appended and does not end: the profile stays as it was',
    hint = 'It has not ended for 5 s. Look for it in pg_stat_activity (idle in transaction) or pg_prepared_xacts, then try again.';
end
$$;
