-- The production profile's guard at COMMIT, by itself: which levels it lets pass.
begin;
\ir shared/refused.sql
select * from no_plan();

create temporary table appended (n int);
create trigger guard_commit after insert on appended for each row execute function oml.guard_commit();
create function pg_temp.commit_under(level text)
returns bigint
language plpgsql
as $$
begin
  perform set_config('synchronous_commit', level, true);
  insert into appended values (1);
  return (select count(*) from appended);
end
$$;
select pg_temp.refused(
  format('select pg_temp.commit_under(%L)', level), 'OM182', format('synchronous_commit was lowered to %s after an append', level),
  '%remote_write or more%', 'a commit under ' || level
)
from unnest(array['off', 'local']) level;
select lives_ok(format('select pg_temp.commit_under(%L)', level), 'a commit under ' || level)
from unnest(array['remote_write', 'on', 'remote_apply']) level;

select * from finish();
rollback;
