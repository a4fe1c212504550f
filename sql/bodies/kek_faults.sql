-- Asks the signer to open a data key of every tenant and epoch that has any: the one with the lowest id, and the one
-- with the highest, for a key-encryption key that was replaced fits only what one of the two wrapped. A signer
-- that does not answer at all is one fault, of no tenant.
create function oml.kek_faults()
returns table (tenant text, kek_epoch int, code text, message text)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  key record;
  opened record;
begin
  perform oml.require_provider('operate', 'audit');
  for key in
    select t.tenant_id, t.name, e.epoch, s.value as signer, d.artifact_id, d.version, d.dek_id, d.wrapped
    from oml.tenant t
    cross join lateral generate_series(1, oml.kek_epoch(t.tenant_id)) e (epoch)
    cross join lateral (
      (select a.* from oml.dek a where a.tenant_id = t.tenant_id and a.kek_epoch = e.epoch order by a.tenant_id, a.dek_id limit 1)
      union
      (select z.* from oml.dek z where z.tenant_id = t.tenant_id and z.kek_epoch = e.epoch order by z.tenant_id desc, z.dek_id desc limit 1)
    ) d
    left join oml.setting s on s.name = 'signer'
    order by t.name, e.epoch, d.dek_id
  loop
    continue when key.name = tenant and key.epoch = kek_epoch;
    opened := oml.open_parts(
      key.signer, uuid_send(key.tenant_id), uuid_send(key.artifact_id), key.version, key.epoch,
      uuid_send(key.dek_id), key.wrapped, '{}', '{}', '{}'
    );
    continue when opened.refusal is null;
    code := opened.refusal[1];
    message := opened.refusal[2];
    if substr(code, 3) not in ('095', '098', '099') then  -- none of a key's own
      tenant := null;
      kek_epoch := null;
      return next;
      return;
    end if;
    tenant := key.name;
    kek_epoch := key.epoch;
    return next;
  end loop;
end
$$;
comment on function oml.kek_faults()
  is 'Tenants whose key-encryption key the signer does not hold, or holds another of, for oml doctor. Needs operate or audit on the provider.';
