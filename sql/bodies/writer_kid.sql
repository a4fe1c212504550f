-- The kid that a writer's envelope names; null if it is no such envelope.
create function oml.writer_kid(envelope bytea)
returns bytea
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
import sys

plpy.execute("select oml.load_core('{submission}')")
return sys.modules['_oml_core'].submission.kid(envelope)
$python$;
