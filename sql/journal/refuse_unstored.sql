-- Says that the journal did not take an event: only somebody else's trigger before the insert could see to that.
create function oml.refuse_unstored()
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using
    errcode = 'OM043',
    message = 'the journal did not store what was appended',
    hint = 'A trigger on oml.journal that is not ours swallows rows. Remove it: \d oml.journal names them.';
end
$$;
