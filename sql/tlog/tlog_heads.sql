create function oml.tlog_heads()
returns table (
  tenant_id uuid, tenant text, generation int, head bigint,
  size bigint, root bytea, published_at timestamptz, checkpoint_hash bytea, nodes bigint
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate', 'audit');
  return query
  select
    t.tenant_id, t.name, coalesce(l.generation, 1),
    coalesce((select j.seq from oml.journal j where j.tenant_id = t.tenant_id order by j.seq desc limit 1), 0),
    coalesce(l.size, 0), l.root, l.published_at, sha256(convert_to(l.checkpoint, 'UTF8')),
    (select count(*) from oml.tlog_node n where n.tenant_id = t.tenant_id and n.generation = l.generation)
  from oml.tenant t
  left join oml.tlog l on l.tenant_id = t.tenant_id
  order by t.chain_no;
end
$$;
comment on function oml.tlog_heads()
  is 'Each tenant''s last chain seq, and its log as recorded: generation, size, root, time, cached subtrees. Needs operate or audit on the provider.';
