-- Keys that are none are not issued.
begin;
\ir shared/refused.sql
select plan(15);

select pg_temp.refused(
  format('select oml_issue_key(%L::bytea, %L)', key, 'signing'), 'OM120', format('a public key of %s bytes', coalesce(octet_length(key)::text, 'no')),
  'An Ed25519 public key has 32 bytes%', format('a key of %s bytes is refused', coalesce(octet_length(key)::text, 'no'))
)
from (values (null), (''::bytea), ('\x00'), (decode(repeat('ab', 31), 'hex')), (decode(repeat('ab', 33), 'hex'))) k (key);

select * from finish();
rollback;
