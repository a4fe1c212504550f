-- Enables the guard of commits for the production profile, and disables it for another. A trigger that waits
-- for the commit cannot be switched: so of what was appended before in this transaction it is asked now.
create function oml.switch_guard_commit(profile text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  set constraints oml.guard_commit immediate;
  set constraints oml.guard_commit deferred;
  if profile = 'production' then
    alter table oml.journal enable always trigger guard_commit;
  else
    alter table oml.journal disable trigger guard_commit;
  end if;
end
$$;
