-- Not granted to anyone: a superuser runs it, as it may name the signer. key.issued is signed by the key
-- in force, key.retired by the new one, which so proves that it is there (docs/explanation/chain.md).
create function @extschema@.oml_rotate_signing_key(signer text default null, kid text default null)
returns text
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  new_signer text;
  public_key bytea;
  rotated record;
  retired oml.receipt;
begin
  perform oml.require_genesis();
  if current_setting('transaction_read_only')::bool then
    perform oml.refuse_read_only();
  elsif current_setting('transaction_isolation') <> 'read committed' then
    raise exception using
      errcode = 'OM129', message = format('a rotation in a transaction that is %s', current_setting('transaction_isolation')),
      hint = 'It must see what others committed while it waited: begin it READ COMMITTED.';
  elsif kid !~ '^[0-9a-f]{16}$' then
    raise exception using
      errcode = 'OM125', message = format('no key %L was issued', kid),
      hint = 'oml keys list shows them all; a kid has 16 hex digits.';
  end if;
  select coalesce(oml_rotate_signing_key.signer, s.value) into new_signer from oml.setting s where s.name = 'signer';
  public_key := oml.signer_public_key(new_signer, decode(kid, 'hex'));
  rotated := oml.rotate_chains(public_key);
  perform @extschema@.oml_configure('signer', new_signer);
  for page in 1 .. cardinality(rotated.last) loop
    retired := oml.append_provider_event('key.retired', jsonb_build_object(
      'kid', encode(rotated.old_kid, 'hex'), 'purpose', 'signing',
      'successor', encode(substr(sha256(public_key), 1, 8), 'hex'),
      'page', page, 'pages', cardinality(rotated.last), 'last', rotated.last[page]
    ));
    if page = 1 then
      update oml.key k set retired_seq = retired.seq where k.kid = rotated.old_kid;
    end if;
  end loop;
  return encode(substr(sha256(public_key), 1, 8), 'hex');
end
$$;
comment on function @extschema@.oml_rotate_signing_key(text, text)
  is 'Put another signing key in force on every chain: the one the signer holds, or the one named by kid. Returns its kid. Superuser only.';
