-- What oml.tenant, the outbox and the journal know of each chain, in one snapshot: a tail cut off the
-- journal alone shows here, and a tenant whose row is gone or carries another's name. The journal's
-- tenants are found by stepping through its primary key.
create function oml.known_heads()
returns table (tenant_id text, name text, chain_seq bigint, journal_seq bigint)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('audit', 'operate');
  return query
  with recursive chain (id) as (
    (select j.tenant_id from oml.journal j order by j.tenant_id limit 1)
    union all
    select (select j.tenant_id from oml.journal j where j.tenant_id > c.id order by j.tenant_id limit 1)
    from chain c
    where c.id is not null
  ), queued (id, seq) as (
    select o.tenant_id, max(o.chain_seq) from oml.outbox o group by o.tenant_id
  ), known (id) as (
    select t.tenant_id from oml.tenant t
    union select c.id from chain c where c.id is not null
    union select q.id from queued q
  )
  select
    k.id::text, t.name, coalesce(q.seq, 0),
    coalesce((select max(j.seq) from oml.journal j where j.tenant_id = k.id), 0)
  from known k
  left join oml.tenant t on t.tenant_id = k.id
  left join queued q on q.id = k.id;
end
$$;
comment on function oml.known_heads()
  is 'Name of each tenant in oml.tenant and the last chain seq in the outbox and in the journal. Needs audit or operate on the provider.';
