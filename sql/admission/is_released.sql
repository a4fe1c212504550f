-- Whether members of its workarea may read a version in this state.
create function oml.is_released(state text)
returns boolean
language sql
immutable
set search_path = pg_catalog, pg_temp
as $$
  select state in ('promoted', 'reassigned')
$$;
