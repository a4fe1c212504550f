-- Enables the guard of commits for the production profile, and disables it for another.
create function oml.switch_guard_commit(profile text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if profile = 'production' then
    alter table oml.journal enable always trigger guard_commit;
  else
    alter table oml.journal disable trigger guard_commit;
  end if;
end
$$;
