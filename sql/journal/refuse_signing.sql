-- Raises what the Python side found wrong with the signer: SQLSTATE, message and hint.
create function oml.refuse_signing(refusal text[])
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = refusal[1], message = refusal[2], hint = refusal[3];
end
$$;
