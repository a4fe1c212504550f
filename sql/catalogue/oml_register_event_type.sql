create function @extschema@.oml_register_event_type(
  type text,
  schema_version int default 1,
  json_schema jsonb default null,
  targets text[] default '{bronze.events}',
  pii_class text default 'none',
  state_keys text[] default '{}',
  required_keys text[] default '{}',
  max_bytes int default 4096,
  description text default ''
)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  digest bytea := sha256(convert_to(json_schema::text, 'UTF8'));
  fault text;
  registered jsonb;
begin
  perform oml.require_operator();
  perform oml.refuse_reserved(type);
  if targets is null or not 'bronze.events' = any (targets) or not targets <@ oml.known_targets()
    or cardinality(targets) <> (select count(distinct t) from unnest(targets) t)
  then
    raise exception using
      errcode = 'OM083', message = format('%L are not targets of an event type', targets),
      hint = format('Lake tables, each once and bronze.events among them; this version has: %s.', array_to_string(oml.known_targets(), ', '));
  end if;
  if octet_length(json_schema::text) > 32768 then
    fault := format('it has %s bytes, a schema may have 32768', octet_length(json_schema::text));
  elsif json_schema is not null then
    fault := oml.schema_fault(json_schema::text);
  end if;
  if fault is not null then
    raise exception using
      errcode = 'OM082', message = format('the schema of event type %L cannot be registered: %s', type, fault),
      hint = 'A schema is JSON Schema 2020-12, refers only to itself and has up to 32768 bytes.';
  end if;
  registered := jsonb_build_object(
    'type', type, 'schema_version', schema_version, 'json_schema', json_schema, 'schema_digest', encode(digest, 'hex'),
    'targets', to_jsonb(targets), 'pii_class', pii_class, 'state_keys', to_jsonb(state_keys),
    'required_keys', to_jsonb(required_keys), 'max_bytes', max_bytes, 'description', description
  );
  begin
    insert into oml.event_type (
      type, schema_version, json_schema, schema_digest, targets, pii_class, state_keys, required_keys, max_bytes, description
    ) values (
      type, schema_version, json_schema, digest, targets, pii_class, state_keys, required_keys, max_bytes, description
    );
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
  if octet_length(registered::text) > 65536 then
    raise exception using
      errcode = 'OM084', message = format('the registration of event type %L has %s bytes, at most 65536 are journalled', type, octet_length(registered::text)),
      hint = 'Shorten its lists of keys or its description.';
  end if;
  perform oml.append_provider_event('event-type.registered', registered);
end
$$;
comment on function @extschema@.oml_register_event_type(text, int, jsonb, text[], text, text[], text[], int, text)
  is 'Add a version of an event type to the catalogue, journalled on the provider chain. Needs operate on the provider.';
