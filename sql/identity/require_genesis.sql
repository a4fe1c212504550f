create function oml.require_genesis()
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if to_regclass('oml.journal') is null then
    raise exception using
      errcode = 'OM021',
      message = 'there is no journal in this database',
      hint = 'Run genesis first: select oml_genesis(''name'').';
  end if;
end
$$;
