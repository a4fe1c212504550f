-- Hashed here from the exact envelopes: the column hash is a projection that somebody may have changed.
create function oml.tlog_entries(tenant_id uuid, after_seq bigint, max_rows int)
returns table (seq bigint, entry bytea)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate', 'audit');
  return query
  select j.seq, sha256(j.envelope)
  from oml.journal j
  where j.tenant_id = tlog_entries.tenant_id and j.seq > after_seq
  order by j.seq
  limit max_rows;
end
$$;
comment on function oml.tlog_entries(uuid, bigint, int)
  is 'The log''s entries of a chain after a chain seq: the SHA-256 of each event''s envelope. Needs operate or audit on the provider.';
