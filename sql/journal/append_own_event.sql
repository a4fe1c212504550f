-- An event of the deployment itself, which functions of other owners append. The first of a chain is its
-- genesis, or at the deployment's the root key.
create function oml.append_own_event(
  tenant_id uuid, type text, payload jsonb, principal text, auth text, caused_by uuid default null
)
returns oml.receipt
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  item constant oml.batch_item := (
    1, type, 1, payload, 'none', null, null, append_own_event.caused_by, null, null, null, null, null, null,
    null, null, null, null
  );
  answer record;
begin
  perform convert_to(concat_ws(' ', payload::text, append_own_event.principal), 'UTF8');  -- see oml_append
  select * into strict answer
  from oml.append_events(
    append_own_event.tenant_id, append_own_event.principal, auth, null, array[item],
    is_first => append_own_event.type in ('key.issued', 'tenant.genesis')
  );
  return (answer.tenant_id, answer.seq, answer.event_id, answer.hash)::oml.receipt;
end
$$;
