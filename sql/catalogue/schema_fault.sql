-- Why a JSON Schema cannot be registered, or null.
create function oml.schema_fault(json_schema text)
returns text
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
import sys

plpy.execute("select oml.load_core('{schema}', 'jsonschema')")
schema = sys.modules['_oml_core'].schema
try:
    schema.check(json_schema)
except schema.SchemaError as error:
    return str(error)
return None
$python$;
