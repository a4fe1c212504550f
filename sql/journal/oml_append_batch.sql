-- All events of the batch or none: in one chain or several, which are locked in chain_no order, so that
-- two batches cannot wait for each other. What is checked is what oml_append checks, for each event.
create function @extschema@.oml_append_batch(events jsonb)
returns setof oml.receipt
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  most constant int := 10000;
  most_bytes constant int := 64 * 1024 * 1024;
  keys constant text[] := array[
    'type', 'payload', 'tenant', 'idempotency_key', 'operation', 'app_version', 'caused_by', 'invocation_id',
    'entity_type', 'entity_id', 'subject_id', 'schema_version'
  ];
  used_tenant text;
  acting_as text;
  session_id uuid;
  wrong record;
  chain record;
  answer record;
  item oml.batch_item;
  known oml.receipt;
  bytes int;
  code text;
  reason text;
  advice text;
  receipts oml.receipt[] := '{}';
begin
  unlisten oml_restricted; -- fails inside maintenance that runs another's code: see oml_append
  perform oml.require_genesis();
  if current_setting('transaction_read_only')::bool then
    perform oml.refuse_read_only();
  end if;
  if jsonb_typeof(events) is distinct from 'array' then
    raise exception using
      errcode = 'OM110', message = format('a batch is a JSON array of events, not %s', coalesce('a JSON ' || jsonb_typeof(events), 'null')),
      hint = 'Pass [{"type": "…", "payload": {…}}, …]; the other keys are named as the arguments of oml_append.';
  end if;
  -- Fails for bytes that are no UTF-8, which a setting of the connection may bring into a text.
  bytes := octet_length(convert_to(events::text, 'UTF8'));
  if jsonb_array_length(events) > most or bytes > most_bytes then
    raise exception using
      errcode = 'OM111',
      message = format('a batch of %s events and %s bytes', jsonb_array_length(events), bytes),
      hint = format('A batch has at most %s events and %s bytes: append it in parts, in one transaction if it must be whole.', most, most_bytes);
  end if;
  select e.n, e.fault into wrong
  from (
    select e.n, case
      when jsonb_typeof(e.event) <> 'object' then 'it is a JSON ' || jsonb_typeof(e.event)
      when e.event - keys <> '{}'
        then 'it has the unknown key ' || (select string_agg(to_json(k)::text, ', ') from jsonb_object_keys(e.event - keys) k)
      when exists (
        select from jsonb_each(e.event - '{payload,schema_version}'::text[]) f where jsonb_typeof(f.value) not in ('string', 'null')
      ) then 'a claim is no string'
      when e.event ->> 'caused_by' !~* '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$' then 'caused_by is no UUID'
      when e.event ->> 'schema_version' !~ '^[0-9]{1,9}$' then 'schema_version is no whole number'
    end as fault
    from jsonb_array_elements(events) with ordinality e (event, n)
  ) e
  where e.fault is not null
  order by e.n
  limit 1;
  if found then
    raise exception using
      errcode = 'OM112',
      message = format('event %s of the batch is not understood: %s', wrong.n, wrong.fault),
      hint = format('An event is an object of type and payload and, as oml_append has them, any of: %s.', array_to_string(keys[3:], ', '));
  end if;

  -- What oml_use asked for, if it was in this transaction.
  if current_setting('oml.transaction', true) = oml.transaction_mark() then
    used_tenant := nullif(current_setting('oml.tenant', true), '');
    acting_as := nullif(current_setting('oml.principal', true), '');
    session_id := nullif(current_setting('oml.impersonation', true), '')::uuid;
  end if;

  for chain in
    with caller as materialized (
      select a.*, count(*) over (partition by a.tenant) as choices
      from oml.appenders(session_id) a
      where acting_as is null or a.principal = acting_as
    ),
    event as (
      select e.n::int, e.event ->> 'type' as type, (e.event ->> 'schema_version')::int as schema_version,
        coalesce(
          e.event ->> 'tenant', used_tenant, (select min(c.tenant) from caller c having count(*) = 1)
        ) as tenant,
        e.event -> 'payload' as payload, e.event ->> 'idempotency_key' as idempotency_key,
        e.event ->> 'operation' as operation, e.event ->> 'app_version' as app_version,
        (e.event ->> 'caused_by')::uuid as caused_by, e.event ->> 'invocation_id' as invocation_id,
        e.event ->> 'entity_type' as entity_type, e.event ->> 'entity_id' as entity_id,
        e.event ->> 'subject_id' as subject_id
      from jsonb_array_elements(events) with ordinality e (event, n)
    )
    select
      checked.tenant_id, checked.principal, checked.auth, checked.impersonation, checked.choices,
      array_agg(checked.item order by checked.n) filter (where checked.refused) as refused,
      array_agg(checked.item order by checked.n) filter (where not checked.refused) as items
    from (
      select c.tenant_id, c.chain_no, c.principal, c.auth, c.impersonation, c.choices, e.n,
        c.choices is distinct from 1 or t.schema_version is null or t.reserved
        or jsonb_typeof(e.payload) is distinct from 'object' or not e.payload ?& t.required_keys
        or octet_length(e.payload::text) > t.max_bytes
        or (t.schema_digest is not null
          and oml.schema_violations(e.type, t.schema_version, t.schema_digest, e.payload::text) is not null)
        or (e.entity_type is null) <> (e.entity_id is null)
        or octet_length(concat(
          e.operation, e.app_version, e.invocation_id, e.entity_type, e.entity_id, e.subject_id, e.idempotency_key
        )) > 2048 as refused,
        (
          e.n, e.type, t.schema_version, e.payload, t.pii_class, e.operation, e.app_version, e.caused_by,
          e.invocation_id, e.entity_type, e.entity_id, e.subject_id, e.idempotency_key,
          case when e.idempotency_key is not null then sha256(convert_to(jsonb_build_array(
            c.auth, e.type, e.schema_version, e.payload, e.operation, e.app_version, e.caused_by,
            e.invocation_id, e.entity_type, e.entity_id, e.subject_id
          )::text, 'UTF8')) end,
          null, null, null, null
        )::oml.batch_item as item
      from event e
      left join caller c on c.tenant = e.tenant
      left join lateral (
        select t.schema_version, t.required_keys, t.max_bytes, t.pii_class, t.reserved, t.schema_digest
        from oml.event_type t
        where t.type = e.type and t.retired_at is null and (e.schema_version is null or t.schema_version = e.schema_version)
        order by t.schema_version desc
        limit 1
      ) t on true
    ) checked
    group by checked.tenant_id, checked.chain_no, checked.principal, checked.auth, checked.impersonation,
      checked.choices
    order by checked.chain_no nulls first
  loop
    -- Either the request is known, from before its type was retired, or oml_append says what is wrong with
    -- it. It never appends here: the events before this one are not yet in the chain.
    foreach item in array coalesce(chain.refused, '{}') loop
      begin
        known := null;
        if item.idempotency_key is not null and chain.choices = 1 then
          known := oml.first_receipt(chain.tenant_id, chain.principal, item.idempotency_key, item.request_digest);
        end if;
        if known.seq is null then
          perform @extschema@.oml_append(
            e.event ->> 'type', e.event -> 'payload', e.event ->> 'tenant', e.event ->> 'idempotency_key',
            e.event ->> 'operation', e.event ->> 'app_version', (e.event ->> 'caused_by')::uuid,
            e.event ->> 'invocation_id', e.event ->> 'entity_type', e.event ->> 'entity_id',
            e.event ->> 'subject_id', (e.event ->> 'schema_version')::int
          ) from (select events -> (item.n - 1) as event) e;
          raise exception using
            errcode = '40001', message = 'the catalogue changed meanwhile', hint = 'Run the transaction again.';
        end if;
        receipts[item.n] := known;
      exception when others then
        get stacked diagnostics code = returned_sqlstate, reason = message_text, advice = pg_exception_hint;
        raise exception using
          errcode = code, message = format('event %s of the batch: %s', item.n, reason), hint = advice;
      end;
    end loop;
    for answer in
      select *
      from oml.append_events(
        chain.tenant_id, chain.principal, chain.auth, chain.impersonation, coalesce(chain.items, '{}')
      )
    loop
      receipts[answer.n] := (answer.tenant_id, answer.seq, answer.event_id, answer.hash)::oml.receipt;
    end loop;
  end loop;
  return query select * from unnest(receipts);
end
$$;
comment on function @extschema@.oml_append_batch(jsonb)
  is 'Append an array of events, all or none, to one or several of the caller''s chains; receipts come in the order of the events.';
