\echo Use "CREATE EXTENSION oml CASCADE" to load this file. \quit
-- The schema of the public functions may be another's, who could put better matches there for the
-- names and operators that this script uses as a superuser. So it looks into the catalogue alone.
set local search_path = pg_catalog, pg_temp;
