-- The first half of a rotation: no append is under way, since each holds its chain's row to its commit
-- and here all rows are locked. The key in force signs who succeeds it and where it leaves each tenant's
-- chain, seq and hash, in pages that fit an event. Returns that key.
create function oml.begin_rotation(public_key bytea)
returns bytea
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  new_kid constant bytea := substr(sha256(public_key), 1, 8);
  old_kid constant bytea := oml.lock_chains();
  known record;
  last jsonb[];
  retired oml.receipt;
begin
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

  select coalesce(array_agg(p.page order by p.number), '{"{}"}') into last
  from (
    select c.number, jsonb_object_agg(c.tenant_id, jsonb_build_array(c.seq, encode(c.hash, 'hex'))) as page
    from (
      select h.tenant_id, j.seq, j.hash, (row_number() over (order by h.chain_no) - 1) / 400 as number
      from oml.chain_head h
      cross join lateral (
        select j.seq, j.hash from oml.journal j where j.tenant_id = h.tenant_id order by j.seq desc limit 1
      ) j
      where h.chain_no > 0
    ) c
    group by c.number
  ) p;
  for page in 1 .. cardinality(last) loop
    retired := oml.append_provider_event('key.retired', jsonb_build_object(
      'kid', encode(old_kid, 'hex'), 'purpose', 'signing', 'successor', encode(new_kid, 'hex'),
      'page', page, 'pages', cardinality(last), 'last', last[page]
    ));
    if page = 1 then
      update oml.key k set retired_seq = retired.seq where k.kid = old_kid;
    end if;
  end loop;
  update oml.chain_head h set kid = new_kid;
  return old_kid;
end
$$;
