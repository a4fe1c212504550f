-- Signs the checkpoint of a chain's log with the key in force. Only of events that are committed: one
-- that is rolled back must never be in a tree that was signed, so the transaction must have written
-- nothing, and then it sees no event of its own; and the root must be that of the events that it sees. Nor behind a closed write gate: a database that was set
-- back would sign against what it published before.
create function oml.tlog_sign(tenant_id uuid, generation int, size bigint, root bytea)
returns text
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  gate record;
  log record;
  made record;
  sealed record;
begin
  perform oml.require_operator();
  gate := oml.gate_state();
  if gate.state <> 'open' then
    perform oml.refuse_closed(gate.state, gate.reason);
  end if;
  if pg_current_xact_id_if_assigned() is not null then
    raise exception using
      errcode = 'OM149', message = 'this transaction has written something, so it may see what is not committed',
      hint = 'Sign a checkpoint in a transaction of its own.';
  end if;
  select h.kid, k.public_key, coalesce(t.generation, 1) as generation, coalesce(t.size, 0) as size, t.root,
    (select max(j.seq) from oml.journal j where j.tenant_id = h.tenant_id) as last
  into log
  from oml.chain_head h
  join oml.key k on k.kid = h.kid
  left join oml.tlog t on t.tenant_id = h.tenant_id
  where h.tenant_id = tlog_sign.tenant_id;
  if not found then
    raise exception using
      errcode = 'OM140', message = format('there is no chain of a tenant %s', tenant_id),
      hint = 'Give the id of a tenant as in oml.tenant. If it is there, oml.chain_head or oml.key lost its row.';
  elsif tlog_sign.generation is distinct from log.generation then
    raise exception using
      errcode = 'OM141', message = format('generation %s of the log is in force, not %s', log.generation, generation),
      hint = 'A log goes on in the generation of its row in oml.tlog; without one it is the first.';
  elsif (tlog_sign.size between 1 and log.last) is not true then
    raise exception using
      errcode = 'OM142', message = format('the chain has %s events, so no checkpoint has %s', log.last, size),
      hint = 'A checkpoint covers from one event to all that are committed.';
  elsif tlog_sign.size < log.size or (tlog_sign.size = log.size and tlog_sign.root is distinct from log.root) then
    raise exception using
      errcode = 'OM143', message = format('a checkpoint of %s events was published, and this one of %s does not go on from it', log.size, size),
      hint = 'A log never takes back what it published. Run oml verify, and compare the tiles with the journal.';
  end if;
  select r.* into made from oml.tlog_root(tenant_id, generation, size, false) r;
  if made.root is distinct from tlog_sign.root then
    raise exception using
      errcode = 'OM155',
      message = format('that is not the root of the first %s events: %s', size, coalesce(made.refusal, 'the journal has another')),
      hint = 'Run oml verify, and compare the tiles with the journal. Rows of oml.tlog_node that were changed have this effect too.';
  end if;
  select s.* into sealed
  from oml.seal_checkpoint(
    (select s.value from oml.setting s where s.name = 'signer'), log.kid, log.public_key,
    (select s.value from oml.setting s where s.name = 'deployment_id')::uuid, tlog_sign.tenant_id,
    tlog_sign.generation, tlog_sign.size, tlog_sign.root
  ) s;
  if sealed.refusal is not null then
    perform oml.refuse_signing(sealed.refusal);
  end if;
  return sealed.checkpoint;
end
$$;
comment on function oml.tlog_sign(uuid, int, bigint, bytea)
  is 'Sign the checkpoint of a chain''s transparency log (c2sp.org/tlog-checkpoint) with the signing key in force, if the root is that of its events. Needs operate on the provider, and a transaction that has written nothing.';
