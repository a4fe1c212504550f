create function oml.tlog_record_nodes(tenant_id uuid, generation int, level int, first_n bigint, hashes bytea)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate');
  insert into oml.tlog_node (tenant_id, generation, level, n, hash)
  select
    tlog_record_nodes.tenant_id, tlog_record_nodes.generation, tlog_record_nodes.level,
    first_n + i, substr(hashes, 32 * i + 1, 32)
  from generate_series(0, octet_length(hashes) / 32 - 1) i
  on conflict on constraint tlog_node_pkey do nothing;
end
$$;
comment on function oml.tlog_record_nodes(uuid, int, int, bigint, bytea)
  is 'Cache hashes of full subtrees that lie side by side, 32 bytes each; those that are there stay. Needs operate on the provider.';
