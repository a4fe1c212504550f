-- Says that a table did not take an event or what follows from it: only somebody else's trigger before the insert
-- could see to that.
create function oml.refuse_unstored()
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using
    errcode = 'OM043',
    message = 'what was appended was not stored whole',
    hint = 'A trigger that is not ours swallows rows of oml.journal, oml.outbox, oml.entity or a table of submissions. Remove it: \d names the triggers of a table.';
end
$$;
