-- The tables are made by this function and not by the script, so that they are no members of the
-- extension: pg_dump keeps them whole, and DROP EXTENSION leaves them.
create function oml.create_tables()
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $create_tables$
begin
