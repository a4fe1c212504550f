-- What a caller says is lost: checked, with the name that oml.tenant has, and without anything else. The lake
-- has at most lake_rows rows of it: one chain seq may be lost twice, an outbox seq not.
create function oml.read_losses(losses jsonb, lake_rows bigint)
returns jsonb
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  most constant int := 100000;
  longest constant numeric := 1000000000000;
  steps constant numeric := 1000;
  numbers constant text[] := '{last_seq,lost_from,lost_to,lake_events,checkpoint_size,generation}';
  too_many constant boolean := jsonb_array_length(losses) > most;
  fault text;
  place bigint;
  item jsonb;
  said record;
  known record;
  entries jsonb[] := '{}';
begin
  for place, item in
    select e.n, e.item from jsonb_array_elements(losses) with ordinality e (item, n) where not too_many
  loop
    if jsonb_typeof(item) <> 'object' then
      fault := 'it is no object';
    elsif coalesce(item ->> 'tenant_id', '') !~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then
      fault := 'tenant_id is no UUID in lower case';
    elsif exists (select from jsonb_each(item) e where e.key = any (numbers) and jsonb_typeof(e.value) not in ('number', 'null')) then
      fault := 'a number is none';
    else
      select * into said from jsonb_to_record(item) i (
        tenant_id uuid, tenant text, last_seq numeric, lost_from numeric, lost_to numeric, lake_events numeric,
        checkpoint_size numeric, generation numeric
      );
      select t.name, coalesce(l.generation, 1) as generation into known
      from (values (said.tenant_id)) s (tenant_id)
      left join oml.tenant t on t.tenant_id = s.tenant_id
      left join oml.tlog l on l.tenant_id = s.tenant_id;
      fault := case
        when exists (
          select from unnest(array[said.last_seq, said.lost_from, said.lost_to, said.lake_events, said.checkpoint_size, said.generation]) v
          where v <> trunc(v) or v not between 0 and 9223372036854775807
        ) then 'a number is not whole, below 0 or above 2^63 - 1'
        when said.last_seq is null then 'last_seq is missing'
        when num_nulls(said.lost_from, said.lost_to) = 1 then 'lost_from and lost_to go together'
        when num_nulls(said.lost_from, said.generation) = 2 then 'neither lost events nor a generation are named'
        when said.lost_from not between 1 and said.last_seq + 1 then 'lost_from is not between 1 and last_seq + 1'
        when said.lost_to - said.lost_from not between 0 and longest then 'lost_to is below lost_from, or more than 10^12 above it'
        when said.lake_events > case when said.lost_from is null then 0 else lake_rows end then 'the lake cannot have so many of them'
        when said.generation not between 1 and least(known.generation + steps, 2147483646)
          then format('generation %s of the log is in force, and this is no later one within %s', known.generation, steps)
        when known.name is null and said.tenant !~ '^[a-z0-9][a-z0-9._-]{0,62}$' then 'tenant is no name'
      end;
    end if;
    exit when fault is not null;
    entries := array_append(entries, jsonb_strip_nulls(jsonb_build_object(
      'tenant_id', said.tenant_id, 'tenant', coalesce(known.name, said.tenant), 'last_seq', said.last_seq::bigint,
      'lost_from', said.lost_from::bigint, 'lost_to', said.lost_to::bigint, 'lake_events', said.lake_events::bigint,
      'checkpoint_size', said.checkpoint_size::bigint, 'generation', said.generation::bigint
    )));
  end loop;
  if too_many then
    place := most + 1;
    fault := format('there are more than %s', most);
  elsif fault is null then
    select max(d.n), 'the tenant is named twice' into place, fault
    from (select e.n, count(*) over (partition by e.item -> 'tenant_id') as times from unnest(entries) with ordinality e (item, n)) d
    where d.times > 1
    having count(*) > 0;
  end if;
  if fault is not null then
    raise exception using
      errcode = 'OM170', message = format('loss %s cannot be accepted: %s', place, fault),
      hint = 'oml gate accept-loss finds what is lost, and names it as this function takes it.';
  end if;
  return to_jsonb(entries);
end
$$;
