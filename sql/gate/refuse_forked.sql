create function oml.refuse_forked()
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  found record;
begin
  select count(*) as chains, min(f.tenant) as tenant, (array_agg(f.seq order by f.tenant))[1] as seq,
    (array_agg(f.reason order by f.tenant))[1] as reason
  into found
  from oml.fork_faults((select s.value from oml.setting s where s.name = 'deployment_id')) f;
  if found.chains > 0 then
    raise exception using
      errcode = 'OM161',
      message = format('the write gate stays closed: %s chain(s) do not end as they must, the first is %s at seq %s: %s', found.chains, found.tenant, found.seq, found.reason),
      hint = 'select * from oml_fork_check() names them all. The journal was damaged or edited: restore it from a backup.';
  end if;
end
$$;
