-- Whether the gate is open here, and why not. In this order: a copy that was also promoted is a copy.
create function oml.gate_state(out state text, out reason text, out instance jsonb, out last jsonb)
returns record
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  this record;
  opened oml.instance%rowtype;
begin
  select * into opened from oml.instance i;
  if found then
    last := oml.instance_json(opened.system_identifier, opened.database_oid, opened.journal_oid, opened.timeline, null);
  end if;
  if pg_is_in_recovery() then
    state := 'standby';
    reason := 'this server is a standby';
    return;
  end if;
  this := oml.this_instance();
  instance := oml.instance_json(this.system_identifier, this.database_oid, this.journal_oid, this.timeline, this.postmaster_start);
  if exists (
    select from oml.gate g
    where (g.system_identifier, g.database_oid, g.journal_oid, g.timeline, g.postmaster_start)
      = (this.system_identifier, this.database_oid, this.journal_oid, this.timeline, this.postmaster_start)
  ) then
    state := 'open';
  elsif last is null then
    state := 'never-opened';
    reason := 'there is no record that it was ever opened';
  elsif (opened.system_identifier, opened.database_oid, opened.journal_oid)
    <> (this.system_identifier, this.database_oid, this.journal_oid)
  then
    state := 'copy';
    reason := 'this is a logical copy: a restored dump, a copied or an upgraded database';
  elsif opened.timeline <> this.timeline then
    state := 'other-timeline';
    reason := format('the server was promoted or restored from a backup: it is on WAL timeline %s, not %s', this.timeline, opened.timeline);
  else
    state := 'restarted';
    reason := 'the server was started anew, or recovered from a crash';
  end if;
end
$$;
