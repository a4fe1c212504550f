-- The reviewer has the bytes when this returns, and may judge them once the event that says so is committed.
-- work_mem holds what is returned: beyond it PostgreSQL would write the plaintext to a temporary file.
create function @extschema@.oml_review_serve(artifact uuid, version bigint default null, tenant text default null)
returns table (
  artifact_version bigint, part int, name text, media_type text, provenance text, content bytea, plaintext_digest bytea
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set work_mem = '64MB'
as $$
#variable_conflict use_column
declare
  actor record;
  held oml.version_row;
  shown record;
  parts jsonb := '[]';
begin
  actor := oml.caller(oml_review_serve.tenant, '{review}', true);
  held := oml.find_version(actor.tenant_id, artifact, version);
  if held.author = actor.principal then
    raise exception using
      errcode = 'OM220', message = format('principal %L is the author of %s/%s', actor.principal, held.artifact_id, held.version),
      hint = 'Nobody reviews what is its own: another principal with the permission review does.';
  elsif held.state <> 'held' then
    raise exception using
      errcode = 'OM225', message = format('%s/%s is %s and not up for review', held.artifact_id, held.version, held.state),
      hint = 'oml_review_queue() lists what is.';
  end if;
  artifact_version := held.version;
  provenance := held.provenance;
  for shown in select o.* from oml.open_version(held) o loop
    part := shown.part;
    name := shown.name;
    media_type := shown.media_type;
    content := shown.content;
    plaintext_digest := shown.plaintext_digest;
    parts := parts || jsonb_build_object(
      'part', shown.part, 'plaintext_digest', encode(shown.plaintext_digest, 'hex'), 'ciphertext_digest', encode(shown.ciphertext_digest, 'hex')
    );
    return next;
  end loop;
  -- Others waited for none of this. Nothing is served of what was judged meanwhile.
  perform oml.lock_chain(actor.tenant_id);
  if (oml.find_version(actor.tenant_id, artifact, held.version)).state <> 'held' then
    raise exception using
      errcode = '40001', message = format('%s/%s was judged meanwhile', held.artifact_id, held.version), hint = 'oml_review_queue() lists what is up for review.';
  end if;
  perform oml.append_admission(actor.tenant_id, actor.principal, actor.auth, array[oml.admission_item(
    'review.serve', jsonb_build_object('parts', parts),
    held.artifact_id, held.version, held.plaintext_digest, held.ciphertext_digest
  )]);
end
$$;
comment on function @extschema@.oml_review_serve(uuid, bigint, text)
  is 'Serve a held version to a reviewer, body and attachments, and journal that: what a verdict rests on. Needs review on the tenant, and not to be its author.';
