create type oml.submission_receipt as (
  tenant_id uuid,
  artifact_id uuid,
  version bigint,
  seq bigint,
  event_id uuid,
  hash bytea,
  plaintext_digest bytea,
  ciphertext_digest bytea
);
comment on type oml.submission_receipt is 'What a submission returns: where its event stands, and both digests of its body. It proves a commit only once the transaction has committed.';
