-- Not granted to anyone: a superuser runs it, as it may name the signer. Two keys take part, so that
-- neither can do it alone: the one in force names its successor and the end of every chain, and the
-- successor signs that it takes over from there (docs/explanation/chain.md).
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
  new_kid text;
  old_kid bytea;
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
  new_kid := encode(substr(sha256(public_key), 1, 8), 'hex');
  old_kid := oml.begin_rotation(public_key);
  perform @extschema@.oml_configure('signer', new_signer);
  perform oml.append_provider_event('key.rotated', jsonb_build_object(
    'kid', new_kid, 'predecessor', encode(old_kid, 'hex')
  ));
  return new_kid;
end
$$;
comment on function @extschema@.oml_rotate_signing_key(text, text)
  is 'Put another signing key in force on every chain: the one the signer holds, or the one named by kid. Returns its kid. Superuser only.';
