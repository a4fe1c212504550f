create type oml.sealed as (
  event_id uuid,
  occurred_us bigint,
  hash bytea,
  envelope bytea,
  refusal text[]
);
comment on type oml.sealed is 'What oml.seal makes of an event: ids, hash and the exact signed bytes; or a refusal (SQLSTATE, message, hint).';
