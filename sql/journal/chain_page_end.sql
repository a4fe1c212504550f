-- The last seq of a page of one chain; null when there is none. A page ends at max_rows or 16 MiB of
-- envelopes, whatever comes first, so that no chain can exhaust a verifier's memory. It is found from
-- the lengths alone, before any row is copied. A chain is read from below seq 1 on, so that whatever a
-- superuser left there is seen.
create function oml.chain_page_end(tenant_id uuid, after_seq bigint, max_rows int)
returns bigint
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  above bigint := case when after_seq > 0 then after_seq else -9223372036854775808 end;
  page_end bigint;
  bytes numeric;
begin
  select max(p.seq), coalesce(sum(octet_length(p.envelope)), 0) into page_end, bytes
  from (
    select j.seq, j.envelope from oml.journal j
    where j.tenant_id = chain_page_end.tenant_id and j.seq > above
    order by j.seq
    limit max_rows
  ) p;
  if bytes <= 16777216 then
    return page_end;
  end if;
  select max(p.seq) into page_end
  from (
    select s.seq, coalesce(
      sum(octet_length(s.envelope)) over (order by s.seq rows between unbounded preceding and 1 preceding), 0
    ) as bytes_before
    from oml.journal s
    where s.tenant_id = chain_page_end.tenant_id and s.seq > above and s.seq <= page_end
  ) p
  where p.bytes_before < 16777216;
  return page_end;
end
$$;
