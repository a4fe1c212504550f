-- What a payload violates of its type's schema, or null. Compiled schemas are kept by digest and not by
-- name: a registration can be rolled back and made again with another schema.
create function oml.schema_violations(type text, schema_version int, schema_digest bytea, payload text)
returns text
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
compiled = SD.setdefault('compiled', {})
schema = compiled.get(schema_digest)
if schema is None:
    import sys
    plpy.execute("select oml.load_core('{schema}', 'jsonschema')")
    stored = plpy.execute(plpy.prepare(
        'select t.json_schema::text as text from oml.event_type t where t.type = $1 and t.schema_version = $2',
        ['text', 'int']), [type, schema_version])
    schema = sys.modules['_oml_core'].schema.Schema(stored[0]['text'])
    if len(compiled) == 64:
        del compiled[next(iter(compiled))]
    compiled[schema_digest] = schema
return '; '.join(schema.violations(payload)) or None
$python$;
