create type oml.batch_receipt as (n int, tenant_id uuid, seq bigint, event_id uuid, hash bytea);
comment on type oml.batch_receipt is 'The receipt of the n-th event of a batch.';
