-- What a client seals and signs, for a superuser's test: ann has a writer key. Include submissions.sql before.

-- The arguments of oml_submit_sealed() for a body and attachments named 1, 2 … under a data key, which is a row of
-- oml_data_key(). They are signed if a writer key's seed of 32 bytes is given.
create function pg_temp.seal_for(key text[], seed bytea, contents bytea[])
returns text
language plpython3u
as $python$
import sys
import uuid

plpy.execute("select oml.load_core('{body,keys,submission}')")
core = sys.modules['_oml_core']
tenant, artifact, dek_id = (uuid.UUID(key[n]) for n in (0, 1, 3))
version, dek, wrapped, epoch = int(key[2]), bytes.fromhex(key[4][2:]), key[5], int(key[6])
place = core.body.Place(tenant.bytes, artifact.bytes, version)
parts = [core.body.seal(dek, place, part, content) for part, content in enumerate(contents)]
names = [''] + [str(n) for n in range(1, len(parts))]


def array(values):
    return f"array[{', '.join(values)}]::bytea[]"


def data(value):
    return f"'\\x{value.hex()}'::bytea"


given = {
    'artifact': f"'{artifact}'", 'version': version, 'dek_id': f"'{dek_id}'", 'wrapped_dek': f"'{wrapped}'::bytea", 'kek_epoch': epoch,
    'ciphertext': data(parts[0].ciphertext), 'plaintext_digest': data(parts[0].plaintext_digest), 'ciphertext_digest': data(parts[0].ciphertext_digest),
    'media_type': "'text/plain'", 'attachment_names': f"'{{{','.join(names[1:])}}}'", 'attachment_types': f"array_fill('text/plain'::text, array[{len(parts) - 1}])",
    'attachments': array(data(p.ciphertext) for p in parts[1:]),
    'attachment_plaintext_digests': array(data(p.plaintext_digest) for p in parts[1:]),
    'attachment_ciphertext_digests': array(data(p.ciphertext_digest) for p in parts[1:]),
}
if seed is not None:
    writer = core.keys.from_seed(seed)
    signed = [core.submission.Signed(p.plaintext_digest, p.ciphertext_digest, 'text/plain', n) for p, n in zip(parts, names)]
    given['writer_envelope'] = data(core.submission.sign(writer.kid, writer.secret_key, place, signed))
return ', '.join(f'{name} => {value}' for name, value in given.items())
$python$;
-- The same under a fresh data key of ann's, for a new artifact or the next version of one.
create function pg_temp.sealed_of(artifact uuid, seed bytea, variadic contents bytea[])
returns text
language sql
as $$
  select pg_temp.seal_for(
    pg_temp.as_login('ann', format(
      'select array[tenant_id::text, artifact_id::text, version::text, dek_id::text, dek::text, wrapped_dek::text, kek_epoch::text] from oml_data_key(%L)', artifact
    ))::text[], seed, contents
  )
$$;
create function pg_temp.sealed(seed bytea, variadic contents bytea[])
returns text
language sql
as $$
  select pg_temp.sealed_of(null, seed, variadic contents)
$$;

create function pg_temp.public_key(seed bytea)
returns bytea
language plpython3u
as $python$
import sys

plpy.execute("select oml.load_core('{keys}')")
return sys.modules['_oml_core'].keys.from_seed(seed).public_key
$python$;
select sha256('the seed of ann''s writer key') as seed \gset
select oml_issue_key(pg_temp.public_key(:'seed'), 'writer', 'globex', 'ann');
