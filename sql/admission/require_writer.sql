-- A writer's own signature counts if its key is in force and this principal's, and it signs just this submission.
create function oml.require_writer(tenant_id uuid, principal text, given oml.submission)
returns bytea
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  signed_by bytea := oml.writer_kid(given.writer_envelope);
  public_key bytea;
begin
  if signed_by is null then
    raise exception using
      errcode = 'OM206', message = 'the writer''s envelope is not understood',
      hint = 'It is a COSE_Sign1 of content type application/oml-submission+cbor, as the driver makes it.';
  end if;
  select k.public_key into public_key
  from oml.key k
  where k.kid = signed_by and k.purpose = 'writer' and k.tenant_id = require_writer.tenant_id
    and k.principal = require_writer.principal and k.retired_seq is null;
  if not found then
    raise exception using
      errcode = 'OM208', message = format('%s is no writer key in force of principal %L', encode(signed_by, 'hex'), principal),
      hint = 'An operator issues it: select oml_issue_key(public_key => …, tenant => …, principal => …).';
  end if;
  if oml.writer_fault(
    given.writer_envelope, public_key, uuid_send(require_writer.tenant_id), uuid_send(given.artifact_id), given.version,
    given.plaintext_digests, given.ciphertext_digests, given.media_types, given.names
  ) is not null then
    raise exception using
      errcode = 'OM207', message = format('the signature of writer key %s is not of this submission', encode(signed_by, 'hex')),
      hint = 'It signs tenant, artifact, version, media type and both digests of the body, and those of each attachment with its name, in order.';
  end if;
  return signed_by;
end
$$;
