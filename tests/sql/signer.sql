-- The signing key: whatever is wrong with it stops the append, and nothing is ever stored unsigned.
begin;
\ir shared/refused.sql
select plan(108);

-- Files as the server's own OS user makes them.
create function pg_temp.make_directory()
returns text
language plpython3u
as $$
import tempfile
return tempfile.mkdtemp()
$$;

create function pg_temp.write_file(path text, content text, mode text)
returns text
language plpython3u
as $$
import os
if os.path.exists(path):
    os.unlink(path)
with open(path, 'w') as file:
    file.write(content)
os.chmod(path, int(mode, 8))
return path
$$;

create function pg_temp.chmod(path text, mode text)
returns void
language plpython3u
as $$
import os
os.chmod(path, int(mode, 8))
$$;

create function pg_temp.read_file(path text)
returns text
language plpython3u
as $$
with open(path) as file:
    return file.read()
$$;

create function pg_temp.link_file(path text, target text)
returns text
language plpython3u
as $$
import os
os.symlink(target, path)
return path
$$;

create function pg_temp.remove(path text)
returns void
language plpython3u
as $$
import os
import shutil
if os.path.isdir(path) and not os.path.islink(path):
    shutil.rmtree(path)
else:
    os.unlink(path)
$$;

-- As PYTHONPATH would: a nacl in this directory comes first, and nothing is loaded yet. Null undoes it.
create function pg_temp.shadow_nacl(directory text)
returns void
language plpython3u
as $$
import os
import sys
for name in [m for m in sys.modules if m.partition('.')[0] in ('nacl', '_oml_core')]:
    GD.setdefault('modules', {}).setdefault(name, sys.modules[name])
    del sys.modules[name]
if directory is None:
    sys.path.remove(GD.pop('shadow'))
    sys.modules.update(GD.pop('modules'))
else:
    os.mkdir(directory + '/nacl')
    for name in ('__init__', 'bindings'):
        with open(f'{directory}/nacl/{name}.py', 'w') as file:
            file.write(f'open({directory!r} + "/has-run", "w").close()\n')
    sys.path.insert(0, directory)
    GD['shadow'] = directory
$$;

create function pg_temp.exists(path text)
returns boolean
language plpython3u
as $$
import os
return os.path.exists(path)
$$;

create function pg_temp.uid()
returns int
language plpython3u
as $$
import os
return os.geteuid()
$$;

-- An Ed25519 key of this seed in PKCS#8 PEM (RFC 8410).
create function pg_temp.pem(seed bytea)
returns text
language sql
as $$
  select format(
    E'-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n',
    encode('\x302e020100300506032b657004220420'::bytea || seed, 'base64')
  )
$$;

create role clerk login in role oml_writer;
select oml_create_tenant('globex') as globex \gset
select oml_grant('clerk', 'globex');
select oml_register_event_type('invoice.exported');
select substr(value, 6) as signer from oml.setting where name = 'signer' \gset
select pg_temp.make_directory() as dir \gset
select current_setting('data_directory') || '/oml-signer-test.key' as inside \gset
select regexp_replace(:'inside', '/([^/]*)/([^/]*)$', '/\1/../\1/\2') as around \gset

-- The deployment's key, wherever it lies, signs.
select pg_temp.write_file(:'dir' || '/moved.key', pg_temp.read_file(:'signer'), '0600') as moved \gset
update oml.setting set value = 'file:' || :'moved' where name = 'signer';
set session authorization clerk;
select is((oml_append('invoice.exported', '{}')).seq, 2::bigint, 'the deployment''s key signs from a new place');

-- OM032: the file is looked at for every append, although its key is kept in memory.
reset session authorization;
select pg_temp.chmod(:'moved', '0644');
set session authorization clerk;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}') $$, 'OM032',
  format('signing key %s is open to others: mode 0644, owner uid %s', :'moved', pg_temp.uid()),
  format('chmod 600, and run as its owner, or chown it to uid %s, who reads it now.', pg_temp.uid()),
  'a key that others may read does not sign, although this backend has used it before'
);
reset session authorization;
select pg_temp.chmod(:'moved', '0620');
set session authorization clerk;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}') $$, 'OM032',
  format('signing key %s is open to others: mode 0620, owner uid %s', :'moved', pg_temp.uid()),
  'chmod 600,%', 'nor does one that its group may write'
);
reset session authorization;
select pg_temp.chmod(:'moved', '0400');
set session authorization clerk;
select is((oml_append('invoice.exported', '{}')).seq, 3::bigint, 'once it is the server user''s alone it signs again');
reset session authorization;

-- OM031.
select pg_temp.chmod(:'moved', '0000');
set session authorization clerk;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}') $$, 'OM031',
  format('signing key %s cannot be read: Permission denied', :'moved'),
  '%readable by the server''s OS user.', 'a key that the server cannot read does not sign'
);
reset session authorization;
update oml.setting set value = 'file:' || :'moved' || '/inside' where name = 'signer';
set session authorization clerk;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}') $$, 'OM031',
  format('signing key %s/inside cannot be read: Not a directory', :'moved'),
  '%readable by the server''s OS user.', 'nor does a path that leads through a file'
);
reset session authorization;

-- OM030.
update oml.setting set value = 'file:' || :'moved' where name = 'signer';
select pg_temp.remove(:'moved');
set session authorization clerk;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}') $$, 'OM030',
  format('signing key %s does not exist', :'moved'), '%oml keys generate --out ' || :'moved',
  'a key that was removed does not sign, although this backend has used it before'
);
reset session authorization;

-- OM034: in the very place of the deployment's key.
select pg_temp.write_file(:'moved', pg_temp.pem(sha256('another key')), '0600');
select encode(substr(sha256(oml.signer_public_key('file:' || :'moved')), 1, 8), 'hex') as other_kid \gset
select encode(kid, 'hex') as kid from oml.chain_head where chain_no = 0 \gset
set session authorization clerk;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}') $$, 'OM034',
  format('signer file:%s holds key %s, the deployment signs with %s', :'moved', :'other_kid', :'kid'),
  'Put the deployment''s key back%', 'a valid key that is another than the deployment''s does not sign'
);
reset session authorization;
select pg_temp.refused(
  $$ select oml_create_tenant('initech') $$, 'OM034',
  format('signer file:%s holds key %s, the deployment signs with %s', :'moved', :'other_kid', :'kid'),
  'Put the deployment''s key back%', 'nor does it sign for the deployment itself'
);

-- OM033.
create function pg_temp.is_no_key(path text, content text, name text)
returns setof text
language plpgsql
as $$
begin
  perform pg_temp.write_file(path, content, '0600');
  update oml.setting s set value = 'file:' || path where s.name = 'signer';
  return query select pg_temp.refused(
    'set local session authorization clerk; select oml_append(''invoice.exported'', ''{}'')', 'OM033',
    format('%s does not hold an Ed25519 private key', path),
    '%PKCS#8 PEM%openssl genpkey -algorithm ed25519%', format('%s is no signing key', name)
  );
end
$$;
select pg_temp.is_no_key(:'dir' || '/not.key', content, name)
from (values
  ('an empty file', ''),
  ('text', 'hello'),
  ('a key without its lines', encode('\x302e020100300506032b657004220420'::bytea || sha256('x'), 'base64')),
  ('a key one byte short', replace(pg_temp.pem('\x'), E'\n-----END', encode(sha256('x'), 'base64') || E'\n-----END')),
  ('a seed of 31 bytes', pg_temp.pem(substr(sha256('x'), 1, 31))),
  ('a seed of 33 bytes', pg_temp.pem(sha256('x') || '\x00')),
  ('an X25519 key', replace(pg_temp.pem(sha256('x')), 'MC4CAQAwBQYDK2Vw', 'MC4CAQAwBQYDK2Vu')),
  ('a key that is not base64', E'-----BEGIN PRIVATE KEY-----\n!!!!\n-----END PRIVATE KEY-----\n'),
  ('a public key', replace(pg_temp.pem(sha256('x')), 'PRIVATE', 'PUBLIC')),
  ('an encrypted key', replace(pg_temp.pem(sha256('x')), 'PRIVATE', 'ENCRYPTED PRIVATE')),
  ('a key behind a page of text', repeat(' ', 5000) || pg_temp.pem(sha256('x')))
) f (name, content);
select pg_temp.refused(
  format('select oml.signer_public_key(%L)', 'file:' || :'dir'), 'OM033',
  format('signing key %s is not a regular file', :'dir'), '%PKCS#8 PEM%', 'a directory is no signing key'
);
select pg_temp.refused(
  $$ select oml.signer_public_key('file:/dev/null') $$, 'OM033',
  'signing key /dev/null is not a regular file', '%PKCS#8 PEM%', 'a device is no signing key'
);

-- OM035: base backups copy the data directory.
select pg_temp.write_file(:'inside', pg_temp.read_file(:'signer'), '0600');
update oml.setting set value = 'file:' || :'inside' where name = 'signer';
set session authorization clerk;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}') $$, 'OM035',
  format('signing key %s lies inside the data directory', :'inside'), '%keep the key elsewhere.',
  'a key inside the data directory does not sign'
);
reset session authorization;
select pg_temp.link_file(:'dir' || '/link.key', :'inside');
update oml.setting set value = 'file:' || :'dir' || '/link.key' where name = 'signer';
set session authorization clerk;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}') $$, 'OM035',
  format('signing key %s/link.key lies inside the data directory', :'dir'), '%keep the key elsewhere.',
  'nor does a link from elsewhere to such a key'
);
reset session authorization;
select pg_temp.refused(
  format('select oml.signer_public_key(%L)', 'file:' || :'around'),
  'OM035',
  format('signing key %s lies inside the data directory', :'around'),
  '%keep the key elsewhere.', 'nor does a path that goes around'
);
select pg_temp.remove(:'inside');

-- OM036: providers.
select pg_temp.refused(
  format(
    $$ update oml.setting set value = %L where name = 'signer';
       set local session authorization clerk;
       select oml_append('invoice.exported', '{}') $$, signer
  ),
  'OM036', format('signer ''%s'' is not understood', signer), 'Use file: and an absolute path%',
  format('the signer %s is not understood', signer)
)
from unnest(array['vault:secret/key', 'file:relative.key', 'file:', '/etc/oml/signing.key', 'FILE:/etc/oml/signing.key', '']) as signer;

-- OM090: omld is asked, and is not there.
update oml.setting set value = 'unix:' || :'dir' || '/omld.sock' where name = 'signer';
set session authorization clerk;
select pg_temp.refused(
  $$ select oml_append('invoice.exported', '{}') $$, 'OM090',
  format('the signer at %s/omld.sock cannot be reached: No such file or directory', :'dir'),
  'Start omld on this machine: oml serve --role signer.%', 'a daemon that is not there does not sign'
);
reset session authorization;
select pg_temp.refused(
  format('select oml.signer_public_key(%L)', 'unix:' || :'dir'), 'OM090',
  format('the signer at %s cannot be reached: Connection refused', :'dir'), 'Start omld%', 'nor does a directory'
);

-- A kid names which key is asked for.
select is(
  oml.signer_public_key('file:' || :'signer', decode(:'kid', 'hex')), oml.signer_public_key('file:' || :'signer'),
  'the only key of a signer is that of its kid'
);
select pg_temp.refused(
  format('select oml.signer_public_key(%L, %L)', 'file:' || :'signer', '\x0000000000000000'), 'OM039',
  format('signer file:%s does not hold key 0000000000000000, but %s', :'signer', :'kid'),
  'Put the key back where the signer reads it%', 'and of no other'
);

-- OM037: the library that sees the key comes from the system alone.
select pg_temp.shadow_nacl(:'dir');
select pg_temp.refused(
  'select oml.load_core()', 'OM037', format('PyNaCl was found at %s/nacl/__init__.py', :'dir'),
  '%Install python3-nacl system-wide%', 'a PyNaCl from elsewhere is not loaded'
);
select pg_temp.refused(
  format('select oml.signer_public_key(%L)', 'file:' || :'signer'), 'OM037',
  format('PyNaCl was found at %s/nacl/__init__.py', :'dir'), '%Install python3-nacl system-wide%', 'never sees the key'
);
select is(pg_temp.exists(:'dir' || '/has-run'), false, 'and none of its code has run');
select pg_temp.shadow_nacl(null);

select pg_temp.remove(:'dir');
update oml.setting set value = 'file:' || :'signer' where name = 'signer';
set session authorization clerk;
select is((oml_append('invoice.exported', '{}')).seq, 4::bigint, 'with the deployment''s key back the chain goes on');
reset session authorization;
select results_eq(
  $$ select ok, events from oml_verify_chain('globex') $$, 'values (true, 4::bigint)', 'and verifies'
);

select * from finish();
rollback;
