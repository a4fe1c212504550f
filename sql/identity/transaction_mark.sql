-- What oml_use leaves to say in which transaction it was called; null where nothing was written yet. The
-- next xid can be guessed, and the microsecond in which its transaction begins cannot.
create function oml.transaction_mark()
returns text
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return pg_current_xact_id_if_assigned()::text || ' ' || extract(epoch from transaction_timestamp());
end
$$;
