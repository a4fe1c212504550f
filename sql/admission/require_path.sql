create function oml.require_path(tenant_id uuid, path text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if path is null or octet_length(path) > 512 or path !~ '^[^/[:cntrl:]]+(/[^/[:cntrl:]]+)*$'
    or path ~ '(^|/)([.]{1,2}|[[:space:]].*|.*[[:space:]])(/|$)' or path ~ '[\\\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]'
    or path ~* '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$' or convert_to(path, 'UTF8') is null
  then
    raise exception using
      errcode = 'OM191', message = format('%L is no path of a workarea', left(path, 80)),
      hint = 'Names with single slashes between them, at most 512 bytes, none of them . or .. or with a space at its ends or an invisible character, not of the form of a UUID: research/2026.';
  end if;
  if exists (select from oml.workarea w where w.tenant_id = require_path.tenant_id and w.path = require_path.path) then
    raise exception using
      errcode = 'OM192', message = format('there is a workarea %L already', path),
      hint = 'Take another path, or move that workarea away: select oml_move_workarea(…).';
  end if;
end
$$;
