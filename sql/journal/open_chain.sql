-- Locks a chain, to the end of the transaction, and reads where it stands: the first step of every write.
-- Before that the write gate is asked.
-- Only after the lock, in a new statement and so with a new snapshot, is the head read: in one statement
-- it would be the head from before the wait, and the chain would fork. The key in force lies in the locked
-- row, which is read as it is once locked, also after waiting for a rotation that changed it.
create function oml.open_chain(
  tenant_id uuid,
  is_first boolean,
  out kid bytea, out seq bigint, out hash bytea, out signer text, out deployment_id uuid,
  out synchronous_commit text
)
returns record
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  profile text;
begin
  if current_setting('transaction_read_only')::bool then
    perform oml.refuse_read_only();
  end if;
  perform oml.require_gate();
  perform set_config('oml.tenant_id', open_chain.tenant_id::text, true);
  kid := oml.lock_chain(open_chain.tenant_id);
  select coalesce(last.seq, 0), coalesce(last.hash, decode(repeat('00', 32), 'hex')),
    (select s.value from oml.setting s where s.name = 'signer'),
    (select s.value from oml.setting s where s.name = 'deployment_id')::uuid,
    (select s.value from oml.setting s where s.name = 'profile'), current_setting('synchronous_commit')
  into seq, hash, signer, deployment_id, profile, synchronous_commit
  from (values (1)) one
  left join lateral (
    select j.seq, j.hash
    from oml.journal j
    where j.tenant_id = open_chain.tenant_id
    order by j.seq desc
    limit 1
  ) last on true;
  if signer is null or deployment_id is null or profile is null then
    raise exception using
      errcode = 'OM042',
      message = 'the deployment''s settings lack its signer, id or profile',
      hint = 'Rows of oml.setting were removed behind OML''s back. Restore them before anything is appended.';
  end if;
  if profile = 'production' then
    perform oml.require_quorum();
  end if;
  if seq = 0 and not is_first then
    raise exception using
      errcode = 'OM041',
      message = format('the chain of tenant %s is empty: its genesis event is gone', open_chain.tenant_id),
      hint = 'Events were removed from the journal. Run oml verify, and restore from a backup.';
  end if;
end
$$;
