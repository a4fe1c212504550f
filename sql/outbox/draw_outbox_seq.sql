-- Takes the xid first, so that whoever has drawn a number can be waited for by its xid, also after
-- PREPARE TRANSACTION; the INSERT has locked the table before this default runs.
create function oml.draw_outbox_seq()
returns bigint
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_current_xact_id();
  return nextval('oml.outbox_seq');
end
$$;
