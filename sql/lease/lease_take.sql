-- Takes a lease, or renews it for who holds it under that term. It is free when it was given back, has expired, or its holder's
-- session is gone, as after a kill or a failover: the expiry is for a holder that hangs and whose session lives on. A
-- pid that is in use again for another session only means that the expiry is waited for. Whoever held it and finds another term has
-- lost it. The row comes back as it is then; is_held says whether the caller has it.
create function oml.lease_take(lease_name text, as_holder text, under_term bigint, ttl_s double precision)
returns table (is_held boolean, term bigint, holder text, seconds_left double precision)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  now_is timestamptz;
  found_lease record;
  is_mine boolean;
begin
  perform oml.require_provider('operate');
  if not ttl_s between 0.1 and 86400 or coalesce(as_holder, '') = '' then
    raise exception using
      errcode = 'OM235', message = 'a lease is held by somebody, for 0.1 to 86400 seconds',
      hint = 'The setting is lease_s.';
  end if;
  select * into found_lease from oml.lease l where l.name = lease_name for update;
  if not found then
    raise exception using
      errcode = 'OM236', message = format('there is no lease %L', lease_name),
      hint = 'Its row was removed: select oml_attach() as a superuser makes it anew.';
  end if;
  now_is := clock_timestamp();
  is_mine := found_lease.holder is not distinct from as_holder and found_lease.term is not distinct from under_term;
  if is_mine or (under_term is null and (
    found_lease.holder is null or found_lease.expires_at <= now_is
    or found_lease.renewed_at > now_is + interval '1 second' -- the clock was set back: by how much, no expiry can tell
    or not exists (select from pg_stat_get_activity(found_lease.backend_pid) a)
  )) then
    return query
    update oml.lease l set
      term = case when is_mine then l.term else l.term + 1 end,
      holder = as_holder,
      backend_pid = pg_backend_pid(),
      taken_at = case when is_mine then l.taken_at else now_is end,
      renewed_at = now_is,
      expires_at = now_is + make_interval(secs => ttl_s)
    where l.name = lease_name
    returning true, l.term, l.holder, ttl_s;
    return;
  end if;
  return query select false, found_lease.term, found_lease.holder, extract(epoch from found_lease.expires_at - now_is)::float8;
end
$$;
comment on function oml.lease_take(text, text, bigint, double precision)
  is 'Take a lease that is free, or renew one that the caller holds under a term, for some seconds; and who has it then. Needs operate on the provider.';
