-- Opens the write gate if a first append may, or refuses. open_chain looks by itself, with the head.
create function oml.require_gate()
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_is_in_recovery() then
    perform oml.refuse_read_only();
  end if;
  perform oml.open_gate_alone();
end
$$;
