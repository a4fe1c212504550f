create function oml.bodies_advance(upto bigint)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate');
  if upto > (select f.seq from oml.frontier f where f.name = 'lake') then
    raise exception using
      errcode = 'OM230',
      message = format('the frontier of the bodies may not go to %s, past the lake''s', upto),
      hint = 'Bodies that come later would be taken for moved.';
  end if;
  update oml.frontier f
  set seq = upto, advanced_at = clock_timestamp()
  where f.name = 'bodies' and f.seq < upto;
end
$$;
comment on function oml.bodies_advance(bigint)
  is 'Move the frontier of the bodies up to an outbox seq; a lower one changes nothing. Needs operate on the provider.';
