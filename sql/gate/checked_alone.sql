-- Whether this session has made the database's own check of this instance; it remembers one that it has
-- just made. So where another transaction holds the opening back, a session checks once.
create function oml.checked_alone(instance text, just_made boolean)
returns boolean
language plpython3u
volatile
set search_path = pg_catalog, pg_temp
as $python$
if just_made:
    SD['instance'] = instance
return SD.get('instance') == instance
$python$;
