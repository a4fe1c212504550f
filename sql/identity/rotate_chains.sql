-- Puts another signing key in force on every chain at once. No append is under way then: each holds its
-- chain's row to its commit, and here all rows are locked, those of tenants in chain_no order and the
-- provider's last. Appends wait meanwhile, so it gives up rather than wait for long on one that is open.
-- Returns the key that was in force and the last seq it signed on the provider chain.
create function oml.rotate_chains(
  public_key bytea, out old_kid bytea, out last jsonb[]
)
returns record
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
#variable_conflict use_column
declare
  new_kid bytea := substr(sha256(public_key), 1, 8);
  known record;
begin
  begin
    perform from oml.chain_head h where h.chain_no > 0 order by h.chain_no for update;
    old_kid := oml.lock_provider();
    -- Tenants that were created while the provider's row was waited for.
    perform from oml.chain_head h where h.chain_no > 0 order by h.chain_no for update;
  exception when lock_not_available then
    raise exception using
      errcode = 'OM119', message = 'a transaction holds a chain: nothing was rotated',
      hint = 'It appended and has not ended for 10 s. Look for it in pg_stat_activity (idle in transaction), then rotate again.';
  end;

  select k.purpose, k.retired_seq into known from oml.key k where k.kid = new_kid;
  if new_kid = old_kid then
    raise exception using
      errcode = 'OM127', message = format('key %s signs already', encode(new_kid, 'hex')),
      hint = 'Give the signer that holds the new key, or its kid.';
  elsif known.retired_seq is not null or known.purpose = 'writer' then
    raise exception using
      errcode = 'OM128', message = format('key %s cannot sign: %s', encode(new_kid, 'hex'), case when known.retired_seq is null then 'it is a writer key' else 'it was retired' end),
      hint = 'Make a new one with oml keys generate.';
  elsif known.purpose is null then
    perform oml.issue_key(public_key, 'signing');
  end if;

  -- Where the old key ends on each chain, seq and hash, in pages that fit an event; the provider's own comes first.
  select array_agg(p.page order by p.number) into last
  from (
    select c.number, jsonb_object_agg(c.tenant_id, jsonb_build_array(c.seq, encode(c.hash, 'hex'))) as page
    from (
      select h.tenant_id, coalesce(j.seq, 0) as seq, coalesce(j.hash, decode(repeat('00', 32), 'hex')) as hash,
        (row_number() over (order by h.chain_no) - 1) / 400 as number
      from oml.chain_head h
      left join lateral (
        select j.seq, j.hash from oml.journal j where j.tenant_id = h.tenant_id order by j.seq desc limit 1
      ) j on true
    ) c
    group by c.number
  ) p;
  update oml.chain_head h set kid = new_kid;
end
$$;
