-- For whoever but the kernel inserts into the journal: its oml_append and append_events see to what their
-- events imply by themselves. So no path writes an event without its outbox rows and its entity's state.
-- No SET clause: current_user is no function, and derive_events pins its own search_path.
create function oml.derive()
returns trigger
language plpgsql
as $$
begin
  if current_user <> 'oml_kernel' then
    perform oml.derive_events(new.tenant_id, new.seq, new.seq);
  end if;
  return null;
end
$$;
