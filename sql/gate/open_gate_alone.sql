-- A first append after a plain restart opens the gate itself, in its own transaction, where the database's
-- own check is all there is: the key is a file, and nothing was ever published or drained. Otherwise it
-- is refused, with the way out.
-- Of several first appends one opens. The others wait for it two seconds; if its transaction takes longer,
-- each makes the check for itself and leaves the opening to that one.
create function oml.open_gate_alone()
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  found record;
  opens boolean := true;
begin
  begin
    perform from oml.instance i for update;
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
    or not exists (select from oml.setting s where s.name = 'signer' and s.value like 'file:%')
  then
    perform oml.refuse_closed(found.state, found.reason);
  end if;
  perform oml.refuse_forked();
  if opens then
    perform oml.open_gate('{"database": "checked", "lake": "none", "tlog": "none"}');
  end if;
end
$$;
