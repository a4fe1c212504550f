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
begin
  -- Index expressions, materialized views and the like run their owner's code inside another's ANALYZE
  -- or autovacuum, where session_user is that other's. PostgreSQL flags such operations; UNLISTEN is
  -- refused in them and does nothing elsewhere. So nobody acts with the rights of who maintains a table.
  unlisten oml_restricted;
  perform oml.require_genesis();

  -- What oml_use asked for, if it was in this transaction.
  if current_setting('oml.transaction', true)
    = pg_current_xact_id_if_assigned()::text || ' ' || extract(epoch from transaction_timestamp())
  then
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
    select t.schema_version, t.required_keys, t.max_bytes, t.pii_class, t.reserved
    from oml.event_type t
    where t.type = oml_append.type
      and (oml_append.schema_version is null or t.schema_version = oml_append.schema_version)
    order by t.schema_version desc
    limit 1
  ) e on true
  where (oml_append.tenant is null or m.tenant = oml_append.tenant)
    and (acting_as is null or m.principal = acting_as)
  limit 1;
  if not found or caller.choices > 1 then
    perform oml.refuse_caller(tenant, acting_as, 'append', session_id);
  end if;
  if caller.schema_version is null or caller.reserved
    or jsonb_typeof(payload) is distinct from 'object'
    or not payload ?& caller.required_keys
    or octet_length(payload::text) > caller.max_bytes
  then
    perform oml.refuse_event(
      type, oml_append.schema_version, payload, caller.schema_version, caller.reserved,
      caller.required_keys, caller.max_bytes
    );
  end if;
  if octet_length(concat(operation, app_version, invocation_id, entity_type, entity_id, subject_id, idempotency_key)) > 2048 then
    raise exception using
      errcode = 'OM016',
      message = 'the claims beside the payload are longer than 2048 bytes together',
      hint = 'operation, app_version, invocation_id, entity_*, subject_id and idempotency_key are short names; content belongs in the payload.';
  end if;

  -- The request as it was made: a retry is the same call, whatever the catalogue says by then.
  if idempotency_key is not null then
    request_digest := sha256(convert_to(jsonb_build_array(
      type, schema_version, payload, operation, app_version, caused_by, invocation_id, entity_type,
      entity_id, subject_id
    )::text, 'UTF8'));
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
