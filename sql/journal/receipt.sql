create type oml.receipt as (
  tenant_id uuid,
  seq bigint,
  event_id uuid,
  hash bytea
);
comment on type oml.receipt is 'What an append returns. It proves a commit only once the transaction has committed.';
