create function oml.tlog_advance(upto bigint)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform oml.require_provider('operate');
  if upto > (select coalesce(max(o.seq), 0) from oml.outbox o) then
    raise exception using
      errcode = 'OM152',
      message = format('the tlog''s frontier may not go to %s, past the end of the outbox', upto),
      hint = 'Rows that come later would be taken for published.';
  end if;
  update oml.frontier f
  set seq = upto, advanced_at = clock_timestamp()
  where f.name = 'tlog' and f.seq < upto;
end
$$;
comment on function oml.tlog_advance(bigint)
  is 'Move the tlog''s frontier up to an outbox seq; a lower one changes nothing. Needs operate on the provider.';
