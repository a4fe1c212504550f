-- A submission is made from versions that its author may read; and what was made from a simulation is one.
create function oml.require_sources(tenant_id uuid, principal text, provenance text, derived_from text[])
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  source record;
begin
  for source in
    select d.name, v.provenance, v.artifact_id is not null and oml.may_read(v.tenant_id, v.workarea_id, v.author, v.state, require_sources.principal) as is_known
    from unnest(derived_from) d (name)
    left join oml.artifact_version v
      on v.tenant_id = require_sources.tenant_id
      and v.artifact_id = split_part(d.name, '/', 1)::uuid and v.version = split_part(d.name, '/', 2)::bigint
  loop
    if not source.is_known then
      raise exception using
        errcode = 'OM204', message = format('there is no version %s that the author may read', source.name),
        hint = 'A version is made from the author''s own, and from what is released in the author''s workareas.';
    elsif source.provenance = 'simulated' and provenance <> 'simulated' then
      raise exception using
        errcode = 'OM205', message = format('%s is simulated, and what is made from it cannot be %s', source.name, provenance),
        hint = 'Submit it as simulated. Simulation cannot be taken off again.';
    end if;
  end loop;
end
$$;
