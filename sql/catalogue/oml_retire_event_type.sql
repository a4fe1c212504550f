create function @extschema@.oml_retire_event_type(type text, schema_version int default null)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  retired int[];
begin
  perform oml.require_operator();
  perform oml.refuse_reserved(oml_retire_event_type.type);
  if not exists (
    select from oml.event_type t
    where t.type = oml_retire_event_type.type
      and t.schema_version = coalesce(oml_retire_event_type.schema_version, t.schema_version)
  ) then
    perform oml.refuse_unregistered(oml_retire_event_type.type, oml_retire_event_type.schema_version);
  end if;
  with changed as (
    update oml.event_type t set retired_at = clock_timestamp()
    where t.type = oml_retire_event_type.type
      and t.schema_version = coalesce(oml_retire_event_type.schema_version, t.schema_version)
      and t.retired_at is null
    returning t.schema_version
  )
  select array_agg(c.schema_version order by c.schema_version) into retired from changed c;
  if retired is null then
    return false;
  end if;
  perform oml.append_provider_event('event-type.retired', jsonb_build_object(
    'type', oml_retire_event_type.type, 'schema_versions', to_jsonb(retired)
  ));
  return true;
end
$$;
comment on function @extschema@.oml_retire_event_type(text, int)
  is 'Refuse new events of a version of an event type, or of all its versions, from now on, journalled on the provider chain; false when they are retired already. Old events verify as ever. Needs operate on the provider.';
