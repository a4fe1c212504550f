create function oml.tlog_keys()
returns setof bytea
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate', 'audit');
  return query
  select k.public_key from oml.key k where k.purpose in ('root', 'signing') order by k.issued_seq;
end
$$;
comment on function oml.tlog_keys()
  is 'Public keys that a checkpoint may be signed with: the signing keys of now and before. Needs operate or audit on the provider.';
