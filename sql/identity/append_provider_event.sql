-- A deployment act, journalled on the provider chain in the transaction of its change.
create function oml.append_provider_event(type text, payload jsonb, caused_by uuid default null)
returns oml.receipt
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return oml.append_event(
    (select s.value from oml.setting s where s.name = 'deployment_id')::uuid,
    type, 1, payload, 'none', session_user::text,
    case when (select r.rolsuper from pg_roles r where r.rolname = session_user)
      then 'superuser' else 'membership:operate' end,
    caused_by => append_provider_event.caused_by
  );
end
$$;
