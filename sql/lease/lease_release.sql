create function oml.lease_release(name text, holder text, term bigint)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate');
  update oml.lease l set holder = null, backend_pid = null, expires_at = clock_timestamp()
  where l.name = lease_release.name and l.holder = lease_release.holder and l.term = lease_release.term;
  return found;
end
$$;
comment on function oml.lease_release(text, text, bigint)
  is 'Give a lease back; false when the caller no longer has it. Needs operate on the provider.';
