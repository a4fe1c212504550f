-- What a caller says beside the content, in events of its submission or review: short, and valid UTF-8 each on
-- its own (see oml_append).
create function oml.require_claims(variadic claims text[])
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  claim text;
  bytes int := 0;
begin
  foreach claim in array claims loop
    bytes := bytes + coalesce(octet_length(convert_to(claim, 'UTF8')), 0);
  end loop;
  if bytes > 2048 then
    raise exception using
      errcode = 'OM016',
      message = 'the claims beside the content are longer than 2048 bytes together',
      hint = 'Reason, operation, app_version, invocation_id, subject_id and idempotency_key are short; content belongs in the body.';
  end if;
end
$$;
