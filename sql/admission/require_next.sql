-- A version is the next of its artifact, its simulation goes on, and its data key is its own. What was encrypted
-- for a version that another submission took meanwhile is not stored.
create function oml.require_next(tenant_id uuid, principal text, given oml.submission)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  next bigint := oml.next_version(require_next.tenant_id, given.artifact_id, require_next.principal);
  was text;
begin
  if given.version > next then
    raise exception using
      errcode = 'OM214', message = format('the next version of artifact %s is %s, not %s', given.artifact_id, next, given.version),
      hint = 'Encrypt for artifact and version as oml_data_key() gave them out.';
  elsif given.version < next then
    raise exception using
      errcode = '40001', message = format('version %s of artifact %s was submitted meanwhile', given.version, given.artifact_id),
      hint = 'Run the transaction again: it becomes the version after it.';
  end if;
  if given.version > 1 then
    select v.provenance into was
    from oml.artifact_version v
    where v.tenant_id = require_next.tenant_id and v.artifact_id = given.artifact_id and v.version = given.version - 1;
    if was = 'simulated' and given.provenance <> 'simulated' then
      raise exception using
        errcode = 'OM205', message = format('%s/%s is simulated, and its next version cannot be %s', given.artifact_id, given.version - 1, given.provenance),
        hint = 'Submit it as simulated. Simulation cannot be taken off again.';
    end if;
  end if;
  if given.sealed_by = 'client' and exists (
    select from oml.dek d where d.tenant_id = require_next.tenant_id and d.dek_id = given.dek_id
  ) then
    raise exception using
      errcode = 'OM227', message = format('data key %s has encrypted another version already', given.dek_id),
      hint = 'Ask oml_data_key() for a fresh key, for each submission anew.';
  end if;
end
$$;
