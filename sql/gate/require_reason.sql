create function oml.require_reason(reason text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(trim(reason), '') = '' or octet_length(reason) > 512 then
    raise exception using
      errcode = 'OM164', message = 'this needs a reason of 1 to 512 bytes',
      hint = 'It is journalled on the provider chain, for whoever asks later.';
  end if;
end
$$;
