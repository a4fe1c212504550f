-- A first append after a plain restart opens the gate itself, in its own transaction, where the database's
-- own check is all there is: the key is a file, no lake and no logs are configured, and nothing was ever
-- published or drained. Otherwise it is refused, with the way out.
-- Of several first appends one opens. The others do not wait for it: each session makes the check for
-- itself, once, and leaves the opening to that one.
create function oml.open_gate_alone()
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  found record;
  opens boolean := true;
begin
  if (oml.gate_state()).state = 'open' then
    return;
  end if;
  begin
    perform from oml.instance i for update nowait;
  exception when lock_not_available then
    opens := false;
  end;
  found := oml.gate_state();
  if found.state = 'open' then
    return;
  end if;
  if found.state <> 'restarted'
    or exists (select from oml.frontier f where f.seq > 0)
    or exists (select from oml.lake_table)
    or exists (select from oml.tlog)
    or exists (select from oml.setting s where s.name in ('lake_url', 'tlog_url'))
    or not exists (select from oml.setting s where s.name = 'signer' and s.value like 'file:%')
  then
    perform oml.refuse_closed(found.state, found.reason);
  end if;
  if not opens and oml.checked_alone(found.instance::text, false) then
    return;
  end if;
  perform oml.refuse_forked();
  perform oml.checked_alone(found.instance::text, true);
  if opens then
    perform oml.open_gate('{"database": "checked", "lake": "none", "tlog": "none"}');
  end if;
end
$$;
