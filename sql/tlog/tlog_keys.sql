-- Whoever may operate can issue a key, but only a rotation puts one in force: the first page in which a key
-- retires names who follows.
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
  select k.public_key
  from oml.key k
  where k.purpose = 'root' or k.purpose = 'signing' and encode(k.kid, 'hex') in (
    select j.payload ->> 'successor'
    from oml.key r
    join oml.journal j on j.tenant_id = (select s.value from oml.setting s where s.name = 'deployment_id')::uuid
      and j.seq = r.retired_seq
    where r.purpose in ('root', 'signing')
  )
  order by k.issued_seq;
end
$$;
comment on function oml.tlog_keys()
  is 'Public keys that a checkpoint may be signed with: the signing keys that are or were in force. Needs operate or audit on the provider.';
