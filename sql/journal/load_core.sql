-- Loads oml.core from its fixed directory, once a backend. Never from a path that a setting, the
-- server user's home or PYTHONPATH could name: that code would see the signing key.
create function oml.load_core()
returns void
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
import os
import sys

directory = '@OML_CORE_DIR@'
trusted = ('/usr/lib/', '/usr/local/lib/')
name = '_oml_core'
if name not in sys.modules:
    # A module's code runs when it is imported: so sys.path is narrowed first, also for what PyNaCl
    # and the core import in turn, and who would have shadowed PyNaCl is only looked up.
    search_path = sys.path[:]
    sys.path[:] = [p for p in search_path if os.path.realpath(p).startswith(trusted)]
    try:
        import importlib
        import importlib.machinery
        import importlib.util

        if 'nacl' in sys.modules:
            found = sys.modules['nacl'].__spec__
        else:
            found = importlib.machinery.PathFinder.find_spec('nacl', search_path)
        if found is not None and not os.path.realpath(found.origin or '').startswith(trusted):
            plpy.error(
                f'PyNaCl was found at {found.origin}', sqlstate='OM037',
                hint='Install python3-nacl system-wide and keep PYTHONPATH and ~/.local of the server user empty.')
        spec = importlib.util.spec_from_file_location(
            name, directory + '/core/__init__.py', submodule_search_locations=[directory + '/core'])
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        for part in ('cbor', 'cose', 'envelope', 'keys', 'wire', 'signer', 'seal', 'chain'):
            importlib.import_module(f'{name}.{part}')
    except BaseException:
        for part in [m for m in sys.modules if m == name or m.startswith(name + '.')]:
            del sys.modules[part]
        raise
    finally:
        sys.path[:] = search_path
$python$;
