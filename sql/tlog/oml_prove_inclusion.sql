create function @extschema@.oml_prove_inclusion(event_id uuid)
returns text
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  event record;
  log record;
  made record;
begin
  perform oml.require_genesis();
  select j.tenant_id, j.seq into event from oml.journal j where j.event_id = oml_prove_inclusion.event_id;
  begin
    perform oml.require_audit(event.tenant_id);
  exception when sqlstate 'OM004' then
    -- Whoever audits another tenant learns as much of this event as of one that there is not.
    if not exists (select from oml.membership m where m.login = session_user and 'audit' = any (m.permissions)) then
      raise;
    end if;
    event.tenant_id := null;
  end;
  if event.tenant_id is null then
    raise exception using
      errcode = 'OM145', message = format('there is no event %s in a chain that %I may audit', event_id, session_user),
      hint = 'Give the event_id that oml_append returned. It is gone if that transaction was rolled back.';
  end if;
  select t.generation, t.size, t.checkpoint into log
  from oml.tlog t where t.tenant_id = event.tenant_id and t.size > 0;
  if not found then
    raise exception using
      errcode = 'OM147', message = 'no checkpoint of this chain was published, and only a checkpoint proves anything',
      hint = case
        when exists (select from oml.setting s where s.name = 'tlog_url')
          then 'omld publishes one within about a second of a commit. Is its role tlog running? Its log and oml tlog status say more.'
        else 'Set tlog_url with oml_configure and run omld with the role tlog.'
      end;
  elsif log.size < event.seq then
    raise exception using
      errcode = 'OM146', message = format('the event is number %s of its chain, and the newest checkpoint covers %s', event.seq, log.size),
      hint = 'omld publishes the next one within about a second. If it does not, look at its log.';
  end if;
  select p.* into made
  from oml.prove_inclusion(
    event.tenant_id, event.seq, log.generation, log.checkpoint,
    (select s.value from oml.setting s where s.name = 'deployment_id')::uuid
  ) p;
  if made.refusal is not null then
    raise exception using
      errcode = 'OM148', message = format('the journal does not lead to the checkpoint that was published: %s', made.refusal),
      hint = 'Run oml verify. If the chain is whole, rows of oml.tlog or oml.tlog_node were changed: the published tiles are the authority.';
  end if;
  return made.proof;
end
$$;
comment on function @extschema@.oml_prove_inclusion(uuid)
  is 'Prove that an event is in the newest published checkpoint of its chain: a c2sp.org/tlog-proof for oml verify-proof. Needs audit on the tenant or the provider.';
