-- Loads oml.core from its fixed directory, once a backend. Never from a path that a setting, the
-- server user's home or PYTHONPATH could name: that code would see the signing key. What an append needs
-- is seal with what it imports. Other parts are named by those who use them, and with their library if
-- it is not PyNaCl: loading all of them would make a backend's first append a fifth longer.
create function oml.load_core(
  parts text[] default '{seal}', library text default 'nacl'
)
returns void
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
import os
import resource
import sys

# This process is to handle keys and content: it leaves no core dump from now on.
resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))

directory = '@OML_CORE_DIR@'
trusted = ('/usr/lib/', '/usr/local/lib/')
name = '_oml_core'
if any(f'{name}.{part}' not in sys.modules for part in parts):
    # A module's code runs when it is imported: so sys.path is narrowed first, also for what PyNaCl
    # and the core import in turn, and who would have shadowed the library is only looked up.
    search_path = sys.path[:]
    loaded = set(sys.modules)
    sys.path[:] = [p for p in search_path if os.path.realpath(p).startswith(trusted)]
    try:
        import importlib
        import importlib.machinery
        import importlib.util

        if library in sys.modules:
            found = sys.modules[library].__spec__
        else:
            found = importlib.machinery.PathFinder.find_spec(library, search_path)
        title = 'PyNaCl' if library == 'nacl' else library
        if found is None:
            plpy.error(
                f'{title} is not installed', sqlstate='OM085',
                hint=f'Install python3-{library} system-wide: PL/Python uses the system\'s Python.')
        if not os.path.realpath(found.origin or '').startswith(trusted):
            plpy.error(
                f'{title} was found at {found.origin}', sqlstate='OM037',
                hint=f'Install python3-{library} system-wide and keep PYTHONPATH and ~/.local of the server user empty.')
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(
                name, directory + '/core/__init__.py', submodule_search_locations=[directory + '/core'])
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
        for part in parts:
            importlib.import_module(f'{name}.{part}')
    except BaseException:
        for part in [m for m in sys.modules if (m == name or m.startswith(name + '.')) and m not in loaded]:
            del sys.modules[part]
        raise
    finally:
        sys.path[:] = search_path
$python$;
