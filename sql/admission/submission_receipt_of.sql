create function oml.submission_receipt_of(first oml.receipt)
returns oml.submission_receipt
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  found_receipt oml.submission_receipt;
begin
  select j.tenant_id, j.artifact_id, j.artifact_version, j.seq, j.event_id, j.hash, j.plaintext_digest, j.ciphertext_digest
  into found_receipt
  from oml.journal j
  where j.tenant_id = first.tenant_id and j.seq = first.seq;
  return found_receipt;
end
$$;
