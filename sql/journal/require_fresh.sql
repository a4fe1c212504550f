-- Under REPEATABLE READ a transaction's snapshot may be older than its lock, and the head it sees no longer
-- the head. A unique index looks past snapshots: so a row is put where the next event belongs, and taken
-- back. Every lower seq is taken, and one that is free was not taken since.
create function oml.require_fresh(tenant_id uuid, seq bigint)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into oml.journal (
    tenant_id, seq, event_id, occurred_at, type, schema_version, prev_hash, hash, kid, writer, principal,
    "authorization", pii_class, synchronous_commit, envelope
  ) values (
    require_fresh.tenant_id, require_fresh.seq, gen_random_uuid(), now(), '', 0, '', '', '', '', '', '', '', '', ''
  );
  raise triggered_action_exception;
exception
  when triggered_action_exception then
    null;
  when unique_violation then
    raise exception using
      errcode = '40001',
      message = 'could not serialize access: the chain grew after this transaction''s snapshot',
      hint = 'Run the transaction again.';
end
$$;
