-- A deployment act, journalled on the provider chain in the transaction of its change.
create function oml.append_provider_event(type text, payload jsonb, caused_by uuid default null)
returns oml.receipt
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  operator record := oml.operator();
begin
  return oml.append_own_event(
    (select s.value from oml.setting s where s.name = 'deployment_id')::uuid,
    type, payload, operator.principal, operator.auth,
    caused_by => append_provider_event.caused_by
  );
end
$$;
