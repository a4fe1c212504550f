create function oml.refuse_unregistered(type text, schema_version int)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using
    errcode = 'OM010',
    message = format('event type %L%s is not registered', type, ' version ' || schema_version),
    hint = 'An operator registers it: select oml_register_event_type(…).';
end
$$;
