-- Run once a database. Makes the tables, the provider chain and its root key. It is not granted to
-- anyone: a superuser runs it, and everything it makes belongs to the three owners.
create function @extschema@.oml_genesis(
  deployment text,
  signer text default 'file:/etc/oml/signing.key',
  lake_url text default null,
  tlog_url text default null
)
returns uuid
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  deployment_id uuid;
  held record;
  root_key bytea;
begin
  if current_setting('transaction_read_only')::bool then
    perform oml.refuse_read_only();
  end if;
  if to_regclass('oml.journal') is not null then
    raise exception using
      errcode = 'OM020',
      message = 'this database has had its genesis',
      hint = 'A database holds one deployment. To bring guards and policies back after DROP EXTENSION, run oml_attach().';
  end if;
  if deployment is null or deployment !~ '^[a-z0-9][a-z0-9._-]{0,62}$' then
    raise exception using
      errcode = 'OM005',
      message = format('%L is not a deployment name', deployment),
      hint = 'Use 1 to 63 lower-case letters, digits, dots, underscores and hyphens, the first a letter or digit.';
  end if;
  if current_setting('server_encoding') <> 'UTF8' then
    raise exception using
      errcode = 'OM024',
      message = format('this database is encoded in %s, not UTF8', current_setting('server_encoding')),
      hint = 'Signed payloads are UTF-8. Create the database with encoding ''UTF8'' template template0.';
  end if;
  select s.public_key, s.deployment_id, s.refusal into held from oml.read_signer(signer) s;
  if held.refusal is not null then
    perform oml.refuse_signing(held.refusal);
  end if;
  root_key := held.public_key;
  deployment_id := coalesce(held.deployment_id, gen_random_uuid());  -- omld was told its deployment
  perform oml.attach();

  insert into oml.setting (name, value) values
    ('deployment_id', deployment_id::text),
    ('deployment', deployment),
    ('signer', signer),
    ('profile', 'local');
  if lake_url is not null then
    perform @extschema@.oml_configure('lake_url', lake_url);
  end if;
  if tlog_url is not null then
    perform @extschema@.oml_configure('tlog_url', tlog_url);
  end if;
  perform oml.register_reserved_types();
  insert into oml.frontier (name) values ('lake');

  perform oml.open_gate('{"database": "genesis"}');
  perform oml.create_chain(deployment_id, 'provider', 0, substr(sha256(root_key), 1, 8));
  perform oml.issue_key(root_key, 'root', jsonb_build_object('deployment', deployment));
  return deployment_id;
end
$$;
comment on function @extschema@.oml_genesis(text, text, text, text)
  is 'Run once a database by a superuser: create the tables and the provider chain whose first event is the root key. Returns the deployment id.';
