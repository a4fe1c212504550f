-- oml_kernel locks a chain's row, of the tenant that it works for, and can change none.
begin;
select * from no_plan();

select oml_create_tenant('globex') as globex \gset
select oml_create_tenant('initech') as initech \gset
create function pg_temp.heads()
returns text
language sql
security definer
as $$ select string_agg(h::text, ',' order by h::text) from oml.chain_head h $$;
create function pg_temp.touched(statement text)
returns bigint
language plpgsql
as $$
declare
  touched bigint;
begin
  execute statement;
  get diagnostics touched = row_count;
  return touched;
end
$$;
select pg_temp.heads() as heads \gset
select set_config('oml.tenant_id', :'globex', true);

set role oml_kernel;
select is(pg_temp.touched('select from oml.chain_head h for ' || strength), 1::bigint, 'it locks its tenant''s row for ' || strength)
from unnest(array['update', 'no key update', 'share', 'key share']) strength;
select is(
  pg_temp.touched(format('select from oml.chain_head h where h.tenant_id = %L for update', :'initech')), 0::bigint, 'and no other''s'
);
select throws_ok('update oml.chain_head set ' || change, '42501', null, 'and cannot change it: ' || change)
from unnest(array[
  'kid = kid', 'kid = ''\x00''', 'tenant_id = tenant_id', 'chain_no = chain_no', format('kid = kid where tenant_id = %L', :'globex')
]) change;
select is(
  pg_temp.touched(format('update oml.chain_head set kid = kid where tenant_id = %L', :'initech')), 0::bigint, 'nor another tenant''s'
);
select throws_ok(statement, '42501', null, 'nor do this: ' || statement)
from (values ('delete from oml.chain_head'), ('truncate oml.chain_head'), ('insert into oml.chain_head select * from oml.chain_head')) s (statement);
reset role;
select is(pg_temp.heads(), :'heads', 'every row is as it was');

select * from finish();
rollback;
