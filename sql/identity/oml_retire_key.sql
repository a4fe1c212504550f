create function @extschema@.oml_retire_key(kid text)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  in_force bytea;
  found_key record;
  retired oml.receipt;
begin
  perform oml.require_operator();
  in_force := oml.lock_provider();
  select k.kid, k.purpose, k.retired_seq into found_key
  from oml.key k
  where encode(k.kid, 'hex') = lower(oml_retire_key.kid);
  if found_key.kid is null then
    raise exception using
      errcode = 'OM125', message = format('no key %L was issued', oml_retire_key.kid),
      hint = 'oml keys list shows them all; a kid has 16 hex digits.';
  elsif found_key.kid = in_force then
    raise exception using
      errcode = 'OM126', message = format('key %s signs for the deployment', oml_retire_key.kid),
      hint = 'It is retired when another takes its place: select oml_rotate_signing_key(…).';
  elsif found_key.retired_seq is not null then
    return false;
  end if;
  retired := oml.append_provider_event('key.retired', jsonb_build_object(
    'kid', encode(found_key.kid, 'hex'), 'purpose', found_key.purpose
  ));
  update oml.key k set retired_seq = retired.seq where k.kid = found_key.kid;
  return true;
end
$$;
comment on function @extschema@.oml_retire_key(text)
  is 'Retire a writer key, or a signing key that was never in force, journalled on the provider chain; false when it is retired already. Needs operate on the provider.';
