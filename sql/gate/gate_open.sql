-- expected is the instance as oml_gate_status() named it before the check: if the server was started anew
-- or promoted since, something else was checked than is opened.
create function oml.gate_open(expected jsonb, evidence jsonb)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  now record;
begin
  perform oml.require_operator();
  perform oml.lock_instance();
  now := oml.gate_state();
  if now.state = 'open' then
    return false;
  elsif now.state = 'copy' then
    perform oml.refuse_closed(now.state, now.reason);
  elsif expected is distinct from now.instance then
    raise exception using
      errcode = 'OM162',
      message = format('the write gate stays closed: this server is not the one that was checked, but %s', now.instance),
      hint = 'It was started anew or promoted meanwhile. Check again: oml gate open.';
  elsif evidence is null or jsonb_typeof(evidence) <> 'object' then
    raise exception using
      errcode = 'OM163', message = 'the write gate is opened on evidence, and none is named',
      hint = 'evidence is a JSON object that says what was compared; oml gate open writes it.';
  end if;
  perform oml.refuse_forked();
  perform oml.open_gate(evidence);
  return true;
end
$$;
comment on function oml.gate_open(jsonb, jsonb)
  is 'Open the write gate of the instance that was checked, after the database''s own check; false when it is open already. Needs operate on the provider.';
