create function @extschema@.oml_adopt(reason text)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  now record;
begin
  perform oml.require_operator();
  perform oml.require_reason(reason);
  perform oml.lock_instance();
  now := oml.gate_state();
  if now.state <> 'copy' then
    raise exception using
      errcode = 'OM165', message = 'this database is no logical copy: there is nothing to adopt',
      hint = 'After a restart, a promotion or a restore of a base backup the gate is opened on evidence: oml gate open.';
  end if;
  perform oml.refuse_forked();
  perform oml.open_gate(jsonb_build_object('database', 'checked', 'adopted', reason));
  perform oml.append_provider_event('database.adopted', jsonb_build_object(
    'from', now.last, 'to', now.instance, 'reason', reason
  ));
end
$$;
comment on function @extschema@.oml_adopt(text)
  is 'Let a logical copy (a restored dump, a copied or an upgraded database) go on in the original''s place: opens the write gate and journals it on the provider chain. oml adopt compares with the lake and the transparency log first. Needs operate on the provider.';
