create function oml.refuse_reserved(type text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if split_part(type, '.', 1) in ('key', 'tenant', 'membership', 'impersonation', 'event-type', 'journal', 'database', 'workarea', 'submission', 'review', 'artifact', 'oml') then
    raise exception using
      errcode = 'OM015', message = format('event type %L lies in a namespace reserved for the deployment', type),
      hint = 'key., tenant., membership., impersonation., event-type., journal., database., workarea., submission., review., artifact. and oml. are taken.';
  end if;
end
$$;
