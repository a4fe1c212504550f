create function @extschema@.oml_register_event_type(
  type text,
  schema_version int default 1,
  required_keys text[] default '{}',
  max_bytes int default 4096,
  pii_class text default 'none',
  description text default ''
)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_operator();
  if split_part(type, '.', 1) in ('key', 'tenant', 'membership', 'impersonation', 'event-type', 'oml') then
    raise exception using
      errcode = 'OM015', message = format('event type %L lies in a namespace reserved for the deployment', type),
      hint = 'key., tenant., membership., impersonation., event-type. and oml. are taken.';
  end if;
  begin
    insert into oml.event_type (type, schema_version, required_keys, max_bytes, pii_class, description)
    values (type, schema_version, required_keys, max_bytes, pii_class, description);
  exception
    when unique_violation then
      raise exception using
        errcode = 'OM018', message = format('event type %L version %s is registered already', type, schema_version),
        hint = 'A registered version never changes: register the next one.';
    when check_violation or not_null_violation then
      raise exception using
        errcode = 'OM019', message = format('event type %L cannot be registered: %s', type, sqlerrm),
        hint = 'A type is dotted lower case such as invoice.exported; versions count from 1; max_bytes lies between 2 and 1048576.';
  end;
  perform oml.append_provider_event('event-type.registered', jsonb_build_object(
    'type', type, 'schema_version', schema_version, 'required_keys', to_jsonb(required_keys),
    'max_bytes', max_bytes, 'pii_class', pii_class
  ));
end
$$;
comment on function @extschema@.oml_register_event_type(text, int, text[], int, text, text)
  is 'Add a version of an event type to the catalogue, journalled on the provider chain. Needs operate on the provider.';
