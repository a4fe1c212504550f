-- One text for one instance, whatever the session's time zone: it is compared. The system identifier is a
-- string, since not every reader of JSON keeps 64 bits.
create function oml.instance_json(
  system_identifier bigint, database_oid oid, journal_oid oid, timeline text, postmaster_start timestamptz
)
returns jsonb
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return jsonb_strip_nulls(jsonb_build_object(
    'system_identifier', system_identifier::text, 'database_oid', database_oid::bigint, 'journal_oid', journal_oid::bigint,
    'timeline', timeline,
    'postmaster_start', to_char(postmaster_start at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
  ));
end
$$;
