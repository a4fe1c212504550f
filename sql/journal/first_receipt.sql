-- The receipt of the request that an idempotency key stands for; null if the key is unused as far as
-- this snapshot sees. It is as good as the commit it is handed out under: so that writes WAL, and waits
-- for standbys, also where nothing else is written. The first commit's wait may have been cut short.
create function oml.first_receipt(tenant_id uuid, principal text, idempotency_key text, request_digest bytea)
returns oml.receipt
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  first record;
begin
  perform set_config('oml.tenant_id', first_receipt.tenant_id::text, true);
  select j.tenant_id, j.seq, j.event_id, j.hash, j.request_digest into first
  from oml.journal j
  where j.tenant_id = first_receipt.tenant_id
    and j.principal = first_receipt.principal
    and j.idempotency_key = first_receipt.idempotency_key;
  if not found then
    return null;
  end if;
  if first.request_digest is distinct from first_receipt.request_digest then
    raise exception using
      errcode = 'OM014',
      message = format('idempotency key %L was used for another request (seq %s)', first_receipt.idempotency_key, first.seq),
      hint = 'A key stands for one request. Retry with the same content, or take a new key.';
  end if;
  perform pg_logical_emit_message(true, 'oml.receipt', '');
  return (first.tenant_id, first.seq, first.event_id, first.hash)::oml.receipt;
end
$$;
