-- What is lost was found outside, by comparing with the lake and the transparency log; here it is compared
-- with the journal once more, while all chains are locked and the gate is closed: so no outbox number up to
-- lake_version, the one at which the lake stands, is drawn and undecided, and the outbox goes on above it.
-- No rollback takes that step back, so it is the last thing before the first append, and bounded from the
-- newest row on: repeated in vain it goes no further.
-- A logical copy is adopted by the way. Returns the provider chain seq of the first journal.loss-accepted.
create function @extschema@.oml_gate_accept_loss(reason text, losses jsonb, lake_version bigint default null)
returns bigint
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  per_page constant int := 100;
  step constant bigint := 1000000000;
  now record;
  stale record;
  drained bigint;
  upto bigint;
  outbox_end bigint;
  drawn bigint;
  checked jsonb;
  pages int;
  part record;
  accepted oml.receipt;
  first_seq bigint;
begin
  perform oml.require_operator();
  perform oml.require_reason(reason);
  if losses is null or jsonb_typeof(losses) <> 'array' or jsonb_array_length(losses) = 0 then
    raise exception using
      errcode = 'OM166', message = 'no loss is named, so there is none to accept',
      hint = 'oml gate status says what is lost, if anything; oml gate accept-loss names it.';
  end if;
  perform oml.lock_instance();
  now := oml.gate_state();
  if now.state = 'open' then
    raise exception using
      errcode = 'OM167', message = 'the write gate is open: no loss stands in the way',
      hint = 'A loss is accepted where it keeps the gate closed. A restart of the server closes it, and it is checked again.';
  end if;
  perform oml.lock_chains();
  perform oml.refuse_forked();
  select coalesce(max(f.seq), 0) into drained from oml.frontier f where f.name = 'lake';
  upto := greatest(drained, lake_version);
  select coalesce(max(o.seq), 0) into outbox_end from oml.outbox o;
  select s.last_value into drawn from oml.outbox_seq s;
  if lake_version < 0 or upto > greatest(drawn, outbox_end + step) then
    raise exception using
      errcode = 'OM169',
      message = format('the lake cannot stand at outbox seq %s: the outbox ends at %s, and goes on at most %s further', coalesce(lake_version, drained), outbox_end, step),
      hint = 'Look at the lake: oml gate status. Where it really stands there, select setval(''oml.outbox_seq'', …) as a superuser comes first.';
  end if;
  checked := oml.read_losses(losses, upto - drained);
  select l.tenant_id, l.last_seq, h.seq into stale
  from jsonb_to_recordset(checked) l (tenant_id uuid, last_seq bigint)
  cross join lateral (select coalesce(max(j.seq), 0) as seq from oml.journal j where j.tenant_id = l.tenant_id) h
  where l.last_seq <> h.seq
  limit 1;
  if found then
    raise exception using
      errcode = 'OM168', message = format('the journal of tenant %s ends at seq %s, not at %s', stale.tenant_id, stale.seq, stale.last_seq),
      hint = 'The loss was found in another state of the journal. Look again: oml gate accept-loss.';
  end if;

  perform oml.open_gate(jsonb_build_object('database', 'checked', 'accepted_loss', reason));
  insert into oml.tlog as t (tenant_id, generation)
  select l.tenant_id, coalesce(l.generation, 1) + 1
  from jsonb_to_recordset(checked) l (tenant_id uuid, generation int)
  where exists (select from oml.tenant n where n.tenant_id = l.tenant_id)
  on conflict on constraint tlog_pkey do update set
    generation = greatest(t.generation + 1, excluded.generation), size = 0, root = null, checkpoint = null, published_at = null;

  if upto > (select s.last_value from oml.outbox_seq s) then
    perform setval('oml.outbox_seq', upto);
  end if;
  if now.state = 'copy' then
    perform oml.append_provider_event('database.adopted', jsonb_build_object(
      'from', now.last, 'to', now.instance, 'reason', reason
    ));
  end if;

  pages := (jsonb_array_length(checked) + per_page - 1) / per_page;
  for part in
    select (e.n - 1) / per_page + 1 as page, jsonb_agg(e.loss order by e.n) as losses
    from jsonb_array_elements(checked) with ordinality e (loss, n)
    group by 1
    order by 1
  loop
    accepted := oml.append_provider_event('journal.loss-accepted', jsonb_strip_nulls(jsonb_build_object(
      'reason', reason, 'losses', part.losses, 'page', part.page, 'pages', pages, 'lake_version', lake_version,
      'outbox', jsonb_build_object('after', drained, 'upto', upto)
    )));
    first_seq := coalesce(first_seq, accepted.seq);
    insert into oml.accepted_loss (
      accepted_seq, tenant_id, tenant, journal_head, lost_from, lost_to, lake_events, outbox_after, outbox_upto
    )
    select accepted.seq, l.tenant_id, l.tenant, l.last_seq, l.lost_from, l.lost_to, coalesce(l.lake_events, 0), drained, upto
    from jsonb_to_recordset(part.losses) l (
      tenant_id uuid, tenant text, last_seq bigint, lost_from bigint, lost_to bigint, lake_events bigint
    );
  end loop;
  return first_seq;
end
$$;
comment on function @extschema@.oml_gate_accept_loss(text, jsonb, bigint)
  is 'Go on after events were lost for good: journals what is lost on the provider chain, opens the write gate, begins new tlog generations and moves the outbox past the lake. oml gate accept-loss finds what is lost and calls this. Needs operate on the provider.';
