-- What the production profile asks of the session before it appends: a commit that standbys confirm.
-- Whether enough of them are there is not asked; the commit waits for them. PostgreSQL waits for none
-- where max_wal_senders is 0, whatever the other settings say.
create function oml.require_quorum()
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('synchronous_commit') in ('off', 'local') then
    raise exception using
      errcode = 'OM180',
      message = format('synchronous_commit is %s: the production profile asks for remote_write or more', current_setting('synchronous_commit')),
      hint = 'Set it to remote_write, on or remote_apply: see oml doctor for where the value comes from.';
  end if;
  if current_setting('synchronous_standby_names') = '' or current_setting('max_wal_senders') = '0' then
    raise exception using
      errcode = 'OM181',
      message = format('%s: no standby confirms a commit, as the production profile asks', case
        when current_setting('synchronous_standby_names') = '' then 'synchronous_standby_names is empty' else 'max_wal_senders is 0' end),
      hint = 'Replicate to a quorum, for example synchronous_standby_names = ''ANY 1 (s1, s2)''. On one disk the profile is local.';
  end if;
end
$$;
