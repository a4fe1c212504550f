-- The lease of the lake writer: who takes, renews and gives back, and what nobody may do to it.
begin;
\ir shared/refused.sql
\ir shared/submissions.sql
select * from no_plan();

prepare takes as select is_held, term, holder from oml.lease_take('lake', $1, $2, $3);
select results_eq($$ execute takes('one', null, 30) $$, $$ values (true, 1::bigint, 'one') $$, 'a free lease is taken, under the next term');
select results_eq($$ execute takes('one', 1, 30) $$, $$ values (true, 1::bigint, 'one') $$, 'and renewed under its term');
select results_eq($$ execute takes('two', null, 30) $$, $$ values (false, 1::bigint, 'one') $$, 'another is told who has it');
select results_eq($$ execute takes('two', 1, 30) $$, $$ values (false, 1::bigint, 'one') $$, 'also under a term that is not its own');
select results_eq($$ execute takes('one', 0, 30) $$, $$ values (false, 1::bigint, 'one') $$, 'as is the holder under another term');
select is(oml.lease_release('lake', 'two', 1), false, 'nobody else gives it back');
select is(oml.lease_release('lake', 'one', 1), true, 'its holder does');
select results_eq($$ execute takes('one', 1, 30) $$, $$ values (false, 1::bigint, null::text) $$, 'and cannot renew it then');
select results_eq($$ execute takes('two', null, 0.1) $$, $$ values (true, 2::bigint, 'two') $$, 'the next one has the next term');
select pg_sleep(0.15);
select results_eq($$ execute takes('two', 2, 0.1) $$, $$ values (true, 2::bigint, 'two') $$, 'an expired one that nobody took is still its holder''s');
select pg_sleep(0.15);
select results_eq($$ execute takes('one', null, 30) $$, $$ values (true, 3::bigint, 'one') $$, 'or another''s, who comes first');
select results_eq($$ execute takes('two', 2, 30) $$, $$ values (false, 3::bigint, 'one') $$, 'and then it is lost');
update oml.lease set renewed_at = now() + interval '1 hour', expires_at = now() + interval '2 hours', holder = 'three';
select results_eq($$ execute takes('one', null, 30) $$, $$ values (true, 4::bigint, 'one') $$, 'nor does one count that was renewed in the future');
update oml.lease set backend_pid = 0;
select results_eq($$ execute takes('two', null, 30) $$, $$ values (true, 5::bigint, 'two') $$, 'whose holder has no session any more is free at once');
select results_eq('select name, term, holder, seconds_left > 29 from oml.leases()', $$ values ('lake', 5::bigint, 'two', true) $$, 'the list says who has it');

select pg_temp.refused(format('select oml.lease_take(''lake'', %L, null, %s)', h, s), 'OM235', 'a lease is held by somebody, for 0.1 to 86400 seconds', '%lease_s%', format('%L for %s s is refused', h, s))
from (values ('me', '0'), ('me', '86401'), ('me', '-1'), ('', '30')) v (h, s);
select pg_temp.refused('select oml.lease_take(''another'', ''me'', null, 30)', 'OM236', 'there is no lease ''another''', '%oml_attach()%', 'a lease that is not there');
select pg_temp.refused('update oml.lease set term = 3', 'OM237', 'lease ''lake'' may not go back from term 5 to 3', 'A term tells%', 'a term that goes back');
select pg_temp.refused('update oml.lease set name = ''mine''', 'OM237', 'lease ''lake'' may not be renamed', 'A term tells%', 'another name');

select * from finish();
rollback;
