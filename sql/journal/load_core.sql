-- Loads oml.core from its fixed directory, once a backend. Never from a path that a setting, the
-- server user's home or PYTHONPATH could name: that code would see the signing key.
create function oml.load_core()
returns void
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
import importlib
import importlib.util
import os
import sys

directory = '@OML_CORE_DIR@'
name = '_oml_core'
module = sys.modules.get(name)
if module is None:
    import nacl.bindings
    if not os.path.realpath(nacl.__file__).startswith(('/usr/lib/', '/usr/local/lib/')):
        plpy.error(
            f'PyNaCl was found at {nacl.__file__}', sqlstate='OM037',
            hint='Install python3-nacl system-wide and keep PYTHONPATH and ~/.local of the server user empty.')
    spec = importlib.util.spec_from_file_location(
        name, directory + '/core/__init__.py', submodule_search_locations=[directory + '/core'])
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        for part in ('cbor', 'cose', 'envelope', 'keys', 'seal', 'chain'):
            importlib.import_module(f'{name}.{part}')
    except BaseException:
        for part in [m for m in sys.modules if m == name or m.startswith(name + '.')]:
            del sys.modules[part]
        raise
$python$;
