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
  caller record;
  acting_as text;
  session_id uuid;
  request_digest bytea;
  refused boolean;
  violations text;
  first oml.receipt;
begin
  -- Index expressions, materialized views and the like run their owner's code inside another's ANALYZE
  -- or autovacuum, where session_user is that other's. PostgreSQL flags such operations; UNLISTEN is
  -- refused in them and does nothing elsewhere. So nobody acts with the rights of who maintains a table.
  unlisten oml_restricted;
  perform oml.require_genesis();

  -- What oml_use asked for, if it was in this transaction.
  if current_setting('oml.transaction', true) = oml.transaction_mark() then
    tenant := coalesce(tenant, nullif(current_setting('oml.tenant', true), ''));
    acting_as := nullif(current_setting('oml.principal', true), '');
    session_id := nullif(current_setting('oml.impersonation', true), '')::uuid;
  end if;

  -- RLS shows a session its own memberships only, so a stranger's tenant looks like no tenant.
  select m.*, count(*) over () as choices, e.*
  into caller
  from (
    select b.tenant_id, b.tenant, b.principal, 'membership:append' as auth, null as impersonation
    from oml.membership b
    where session_id is null and oml_append.tenant is null
      and b.login = session_user and 'append' = any (b.permissions)
    union all
    select b.tenant_id, b.tenant, b.principal, 'membership:append', null
    from oml.membership b
    where session_id is null and b.tenant = oml_append.tenant
      and b.login = session_user and 'append' = any (b.permissions)
    union all
    select a.tenant_id, a.tenant, a.principal, a.auth, a.impersonation
    from oml.appenders(session_id) a
    where session_id is not null
  ) m
  left join lateral (
    select t.schema_version, t.required_keys, t.max_bytes, t.pii_class, t.reserved, t.schema_digest
    from oml.event_type t
    where t.type = oml_append.type
      and t.retired_at is null
      and (oml_append.schema_version is null or t.schema_version = oml_append.schema_version)
    order by t.schema_version desc
    limit 1
  ) e on true
  where (oml_append.tenant is null or m.tenant = oml_append.tenant)
    and (acting_as is null or m.principal = acting_as)
  limit 1;
  if not found or caller.choices > 1 then
    perform oml.refuse_caller(tenant, acting_as, '{append}', session_id);
  end if;

  -- The request as it was made: a retry is the same call, whatever the catalogue says by then.
  if idempotency_key is not null then
    request_digest := sha256(convert_to(jsonb_build_array(
      caller.auth, type, schema_version, payload, operation, app_version, caused_by, invocation_id, entity_type,
      entity_id, subject_id
    )::text, 'UTF8'));
  end if;
  refused := caller.schema_version is null or caller.reserved
    or jsonb_typeof(payload) is distinct from 'object'
    or not payload ?& caller.required_keys
    or octet_length(convert_to(payload::text, 'UTF8')) > caller.max_bytes;
  if not refused and caller.schema_digest is not null then
    violations := oml.schema_violations(type, caller.schema_version, caller.schema_digest, payload::text);
    refused := violations is not null;
  end if;
  if refused then
    if idempotency_key is not null then
      first := oml.first_receipt(caller.tenant_id, caller.principal, idempotency_key, request_digest);
      if first.seq is not null then
        return first;
      end if;
    end if;
    perform oml.refuse_event(
      type, oml_append.schema_version, payload, caller.schema_version, caller.reserved,
      caller.required_keys, caller.max_bytes, violations
    );
  end if;
  -- convert_to, because a session can hold text that is not valid in its encoding, and a row with such
  -- text could be dumped but not restored.
  if octet_length(convert_to(concat(operation, app_version, invocation_id, entity_type, entity_id, subject_id, idempotency_key), 'UTF8')) > 2048 then
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

  return oml.append_event(
    caller.tenant_id, type, caller.schema_version, payload, caller.pii_class, caller.principal,
    caller.auth, caller.impersonation, operation, app_version, caused_by, invocation_id, entity_type,
    entity_id, subject_id, idempotency_key => oml_append.idempotency_key,
    request_digest => request_digest
  );
end
$$;
comment on function @extschema@.oml_append(text, jsonb, text, text, text, text, uuid, text, text, text, text, int)
  is 'Append one event to the caller''s chain, in the caller''s transaction, and return its receipt.';
