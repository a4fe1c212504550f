create function @extschema@.oml_append(
  type text,
  payload jsonb,
  tenant text default null,
  idempotency_key text default null,
  operation text default null,
  app_version text default null,
  caused_by uuid default null,
  invocation_id text default null,
  entity_type text default null,
  entity_id text default null,
  subject_id text default null,
  schema_version int default null
)
returns oml.receipt
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  body text := payload::text;
  acting_as text;
  session_id uuid;
  tenant_id uuid;
  principal text;
  principals bigint := 0;
  auth text;
  impersonation text;
  version int;
  required_keys text[];
  max_bytes int;
  pii_class text;
  reserved boolean;
  schema_digest bytea;
  targets text[];
  state_keys text[];
  request_digest bytea;
  violations text;
  first oml.receipt;
  chain record;
  sealed oml.sealed;
  occurred_at timestamptz;
  target text;
  key text;
  state jsonb := '{}';
begin
  -- Index expressions, materialized views and the like run their owner's code inside another's ANALYZE
  -- or autovacuum, where session_user is that other's. PostgreSQL flags such operations; UNLISTEN is
  -- refused in them and does nothing elsewhere. So nobody acts with the rights of who maintains a table.
  unlisten oml_restricted;
  -- A transaction makes each expression ready anew: so what is usual is asked in one, what is seldom apart.
  if to_regclass('oml.journal') is null or current_setting('oml.transaction', true) <> ''
    or current_setting('oml.core_loaded', true) is distinct from 'on'
  then
    perform oml.require_genesis();
    -- A fresh backend loads Python here, and not with its chain's lock held.
    perform oml.load_core(), set_config('oml.core_loaded', 'on', false);
    -- What oml_use asked for, if it was in this transaction.
    if current_setting('oml.transaction', true) = oml.transaction_mark() then
      tenant := coalesce(tenant, nullif(current_setting('oml.tenant', true), ''));
      acting_as := nullif(current_setting('oml.principal', true), '');
      session_id := nullif(current_setting('oml.impersonation', true), '')::uuid;
    end if;
  end if;

  -- RLS shows a session its own memberships only, so a stranger's tenant looks like no tenant. The plain
  -- case has a statement of its own: each node of a plan costs about as much as a statement does.
  if tenant is not null and acting_as is null and session_id is null then
    auth := 'membership:append';
    for tenant_id, principal in
      select m.tenant_id, m.principal
      from oml.membership m
      where m.login = session_user and m.tenant = oml_append.tenant and 'append' = any (m.permissions)
      limit 2
    loop
      principals := principals + 1;
    end loop;
  else
    select a.tenant_id, a.principal, count(*) over (), a.auth, a.impersonation
    into tenant_id, principal, principals, auth, impersonation
    from oml.appenders(session_id) a
    where (oml_append.tenant is null or a.tenant = oml_append.tenant) and (acting_as is null or a.principal = acting_as)
    limit 1;
  end if;
  select t.schema_version, t.required_keys, t.max_bytes, t.pii_class, t.reserved, t.schema_digest, t.targets, t.state_keys
  into version, required_keys, max_bytes, pii_class, reserved, schema_digest, targets, state_keys
  from oml.event_type t
  where t.type = oml_append.type
    and t.retired_at is null
    and (oml_append.schema_version is null or t.schema_version = oml_append.schema_version)
  order by t.schema_version desc
  limit 1;

  -- convert_to, because a session can hold text that is not valid in its encoding: a row with such text could
  -- be dumped but not restored, and PL/Python would seal it as null. Each on its own, for two may be valid
  -- together.
  if idempotency_key is not null or principals is distinct from 1
    or version is null or reserved or schema_digest is not null
    or jsonb_typeof(payload) is distinct from 'object'
    or not payload ?& required_keys
    or octet_length(convert_to(body, 'UTF8')) > max_bytes
    or octet_length(convert_to(concat_ws(' ', operation, app_version, invocation_id, entity_type, entity_id, subject_id), 'UTF8')) > 2048
    or (entity_type is null) <> (entity_id is null)
  then
    if principals is distinct from 1 then
      perform oml.refuse_caller(tenant, acting_as, '{append}', session_id);
    end if;
    -- The request as it was made: a retry is the same call, whatever the catalogue says by then.
    if idempotency_key is not null then
      request_digest := sha256(convert_to(jsonb_build_array(
        auth, type, schema_version, payload, operation, app_version, caused_by, invocation_id, entity_type,
        entity_id, subject_id
      )::text, 'UTF8'));
    end if;
    if schema_digest is not null and not reserved then
      violations := oml.schema_violations(type, version, schema_digest, body);
    end if;
    if version is null or reserved or violations is not null
      or jsonb_typeof(payload) is distinct from 'object'
      or not payload ?& required_keys
      or octet_length(body) > max_bytes
    then
      if idempotency_key is not null then
        first := oml.first_receipt(tenant_id, principal, idempotency_key, request_digest);
        if first.seq is not null then
          return first;
        end if;
      end if;
      perform oml.refuse_event(
        type, oml_append.schema_version, payload, version, reserved,
        required_keys, max_bytes, violations
      );
    end if;
    if octet_length(concat(operation, app_version, invocation_id, entity_type, entity_id, subject_id, idempotency_key)) > 2048
      or convert_to(concat_ws(' ', operation, app_version, invocation_id, entity_type, entity_id, subject_id, idempotency_key), 'UTF8') is null
    then
      raise exception using
        errcode = 'OM016',
        message = 'the claims beside the payload are longer than 2048 bytes together',
        hint = 'operation, app_version, invocation_id, entity_*, subject_id and idempotency_key are short names; content belongs in the payload.';
    end if;
    if (entity_type is null) <> (entity_id is null) then
      raise exception using
        errcode = 'OM086',
        message = format('an event of %s names an entity by its %s alone', type, case when entity_id is null then 'type' else 'id' end),
        hint = 'entity_type and entity_id go together: an id is unique within its type.';
    end if;
  end if;

  chain := oml.open_chain(tenant_id, false);

  if idempotency_key is not null or chain.may_be_stale then
    if idempotency_key is not null then
      first := oml.first_receipt(tenant_id, principal, idempotency_key, request_digest);
      if first.seq is not null then
        return first;
      end if;
    end if;
    if chain.may_be_stale then
      perform oml.require_fresh(tenant_id, chain.seq + 1);
    end if;
  end if;

  sealed := oml.seal(
    chain.signer, chain.kid, uuid_send(chain.deployment_id), uuid_send(tenant_id), chain.seq + 1, chain.hash,
    type, version, body, session_user::text, principal, auth, impersonation, operation,
    app_version, uuid_send(caused_by), invocation_id, entity_type, entity_id, subject_id, pii_class, chain.synchronous_commit
  );
  if sealed.refusal is not null then
    perform oml.refuse_signing(sealed.refusal);
  end if;

  -- What the event implies follows here: oml.derive has nothing to do.
  occurred_at := timestamptz 'epoch' + sealed.occurred_us * interval '1 microsecond';
  insert into oml.journal (
    tenant_id, seq, event_id, occurred_at, type, schema_version, prev_hash, hash, kid, writer,
    principal, "authorization", impersonation, operation, app_version, caused_by, invocation_id,
    entity_type, entity_id, subject_id, pii_class, synchronous_commit, payload, envelope, idempotency_key,
    request_digest
  ) values (
    tenant_id, chain.seq + 1, sealed.event_id, occurred_at, oml_append.type, version,
    chain.hash, sealed.hash, chain.kid, session_user::text, principal, auth, impersonation,
    oml_append.operation, oml_append.app_version, oml_append.caused_by, oml_append.invocation_id,
    oml_append.entity_type, oml_append.entity_id, oml_append.subject_id, pii_class,
    chain.synchronous_commit, oml_append.payload, sealed.envelope, oml_append.idempotency_key, request_digest
  );
  if not found then
    perform oml.refuse_unstored();
  end if;

  foreach target in array targets loop
    insert into oml.outbox (seq, tenant_id, chain_seq, target)
    values (nextval('oml.outbox_seq'), tenant_id, chain.seq + 1, target);
    if not found then
      perform oml.refuse_unstored();
    end if;
  end loop;
  if entity_id is not null then
    foreach key in array state_keys loop
      if payload ? key then
        state := state || jsonb_build_object(key, payload -> key);
      end if;
    end loop;
    insert into oml.entity as e (
      tenant_id, entity_type, entity_id, last_seq, last_event_id, last_type, event_count, first_at, last_at, state
    ) values (
      tenant_id, oml_append.entity_type, oml_append.entity_id, chain.seq + 1, sealed.event_id, oml_append.type, 1,
      occurred_at, occurred_at, state
    )
    on conflict on constraint entity_pkey do update set
      last_seq = excluded.last_seq, last_event_id = excluded.last_event_id, last_type = excluded.last_type,
      event_count = e.event_count + 1, last_at = excluded.last_at, state = e.state || excluded.state;
    if not found then
      perform oml.refuse_unstored();
    end if;
  end if;
  return (tenant_id, chain.seq + 1, sealed.event_id, sealed.hash)::oml.receipt;
end
$$;
comment on function @extschema@.oml_append(text, jsonb, text, text, text, text, uuid, text, text, text, text, int)
  is 'Append one event to the caller''s chain, in the caller''s transaction, and return its receipt.';
