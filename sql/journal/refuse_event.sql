-- Says what is wrong with an event that oml_append refused; kept off the path of those it takes.
create function oml.refuse_event(
  type text,
  schema_version int,
  payload jsonb,
  registered_version int,
  reserved boolean,
  required_keys text[],
  max_bytes int,
  violations text
)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if registered_version is null and exists (
    select from oml.event_type t
    where t.type = refuse_event.type
      and t.schema_version = coalesce(refuse_event.schema_version, t.schema_version)
  ) then
    raise exception using
      errcode = 'OM081',
      message = format('event type %L%s is retired', type, ' version ' || schema_version),
      hint = 'Its old events stay and verify. Append another type, or an operator registers its next version.';
  elsif registered_version is null then
    perform oml.refuse_unregistered(type, schema_version);
  elsif reserved then
    raise exception using
      errcode = 'OM015',
      message = format('event type %L is reserved for the deployment itself', type),
      hint = 'Register a type of your own.';
  elsif jsonb_typeof(payload) is distinct from 'object' then
    raise exception using
      errcode = 'OM011',
      message = format('the payload of %s is %s, not a JSON object', type, coalesce('a JSON ' || jsonb_typeof(payload), 'null')),
      hint = 'Pass an object such as {"key": "value"}.';
  elsif not payload ?& required_keys then
    raise exception using
      errcode = 'OM012',
      message = format(
        'the payload of %s lacks: %s', type,
        (select string_agg(k, ', ') from unnest(required_keys) k where not payload ? k)
      ),
      hint = format('Version %s of the type requires: %s.', registered_version, array_to_string(required_keys, ', '));
  elsif violations is not null then
    raise exception using
      errcode = 'OM080',
      message = format('the payload of %s violates the schema of version %s: %s', type, registered_version, violations),
      hint = 'Each is named by its JSON Pointer and the keyword; * stands for a key that the schema does not name.';
  end if;
  raise exception using
    errcode = 'OM013',
    message = format('the payload of %s has %s bytes, its type allows %s', type, octet_length(payload::text), max_bytes),
    hint = 'An event says what happened; refer to bodies and files by digest. A type may allow more: max_bytes.';
end
$$;
