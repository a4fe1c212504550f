-- Locks a chain, to the end of the transaction, and reads where it stands: the first step of every write.
-- Only after the lock, in a new statement and so with a new snapshot, is the head read: in one statement
-- it would be the head from before the wait, and the chain would fork. The key in force lies in the locked
-- row, which is read as it is once locked, also after waiting for a rotation that changed it.
-- With the head the write gate is asked: is there a row that names the server that runs now? It has what an
-- append needs of the settings, too. The system identifier is left to the opening: reading it would double
-- the cost, and another cluster's server was started at another microsecond. No unlogged table can be read
-- on a standby, where every transaction is read-only.
-- Whoever appends to a chain that may be stale asks oml.require_fresh first: not here, because a key that was
-- used before is answered from any snapshot that sees it.
-- A SET clause would be a tenth of it.
create function oml.open_chain(
  tenant_id uuid,
  is_first boolean,
  out kid bytea, out seq bigint, out hash bytea, out signer text, out deployment_id uuid,
  out synchronous_commit text, out may_be_stale boolean
)
returns record
language plpgsql
volatile
-- search_path: pinned by its callers
as $$
#variable_conflict use_column
declare
  profile text;
begin
  if current_setting('transaction_read_only') = 'on' or set_config('oml.tenant_id', tenant_id::text, true) is null then
    perform oml.refuse_read_only();
  end if;
  select h.kid into kid from oml.chain_head h where h.tenant_id = open_chain.tenant_id for update;
  select j.seq, j.hash, g.signer, g.deployment_id, g.profile, current_setting('synchronous_commit')
  into seq, hash, signer, deployment_id, profile, synchronous_commit
  from oml.gate g
  left join lateral (
    select j.seq, j.hash
    from oml.journal j
    where j.tenant_id = open_chain.tenant_id
    order by j.seq desc
    limit 1
  ) j on true
  where g.postmaster_start = pg_postmaster_start_time()
    and g.database_oid::text = split_part(pg_relation_filepath('oml.gate'), '/', -2)
    and g.journal_oid = 'oml.journal'::regclass
    and g.timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
  if seq is null or kid is null or signer is null or deployment_id is null or profile is null
    or current_setting('transaction_isolation') not in ('read committed', 'read uncommitted')
  then
    perform oml.require_gate();
    if kid is null then
      perform oml.lock_chain(open_chain.tenant_id);  -- says what is missing
    end if;
    select
      max(s.value) filter (where s.name = 'signer'), (max(s.value) filter (where s.name = 'deployment_id'))::uuid,
      max(s.value) filter (where s.name = 'profile'), current_setting('synchronous_commit')
    into signer, deployment_id, profile, synchronous_commit
    from oml.setting s;
    if signer is null or deployment_id is null or profile is null then
      raise exception using
        errcode = 'OM042',
        message = 'the deployment''s settings lack its signer, id or profile',
        hint = 'Rows of oml.setting were removed behind OML''s back. Restore them before anything is appended.';
    end if;
    select j.seq, j.hash into seq, hash
    from oml.journal j
    where j.tenant_id = open_chain.tenant_id
    order by j.seq desc
    limit 1;
    if not found then
      if not is_first then
        raise exception using
          errcode = 'OM041',
          message = format('the chain of tenant %s is empty: its genesis event is gone', open_chain.tenant_id),
          hint = 'Events were removed from the journal. Run oml verify, and restore from a backup.';
      end if;
      seq := 0;
      hash := decode(repeat('00', 32), 'hex');
    end if;
    may_be_stale := current_setting('transaction_isolation') not in ('read committed', 'read uncommitted');
  end if;
  if profile = 'production' then
    perform oml.require_quorum();
  end if;
end
$$;
