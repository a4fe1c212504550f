create function oml.leases()
returns table (name text, term bigint, holder text, backend_pid int, taken_at timestamptz, renewed_at timestamptz, seconds_left double precision)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate', 'audit');
  return query
  select l.name, l.term, l.holder, l.backend_pid, l.taken_at, l.renewed_at, extract(epoch from l.expires_at - clock_timestamp())::float8
  from oml.lease l order by l.name;
end
$$;
comment on function oml.leases() is 'Who holds which lease, and for how many seconds still. Needs operate or audit on the provider.';
