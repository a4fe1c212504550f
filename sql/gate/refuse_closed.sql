create function oml.refuse_closed(state text, reason text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using
    errcode = 'OM160',
    message = format('the write gate is closed: %s', reason),
    hint = case state
      when 'copy' then 'Where this copy takes the place of the original: oml adopt --reason TEXT. Two databases may not go on with one journal.'
      else 'omld opens it once it has compared the journal with the lake and the transparency log: oml serve, or oml gate open. oml gate status says more.'
    end;
end
$$;
