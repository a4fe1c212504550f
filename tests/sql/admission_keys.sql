-- Idempotency keys of every verb that takes one: the first answer for the same request, whatever came since.
begin;
\ir shared/refused.sql
\ir shared/submissions.sql
\ir shared/sealed.sql
select * from no_plan();

create function pg_temp.events() returns bigint language sql as $$ select count(*) from oml.journal $$;
create temporary table asked (verb text, login text, call text, other text, answer text);
create function pg_temp.asks(verb text, login text, call text, other text) returns void language plpgsql as $$
begin
  insert into asked values (verb, login, call, other, pg_temp.as_login(login, call));
end
$$;

-- Each request, and another one under its key.
select pg_temp.asks('submit', 'ann',
  $$ select s::text from oml_submit('research/2026', 'one', 'text/plain', 'simulated', idempotency_key => 'k1', operation => 'op') s $$,
  $$ select s::text from oml_submit('research/2026', 'two', 'text/plain', 'simulated', idempotency_key => 'k1', operation => 'op') s $$);
select artifact_id as artifact from oml.artifact_version \gset
select pg_temp.asks('submit again', 'ann',
  format($$ select s::text from oml_submit('research/2026', 'two', 'text/plain', 'simulated', artifact => %L, idempotency_key => 'k2', attachments => '{a}', attachment_names => '{a}', attachment_types => '{text/plain}') s $$, :'artifact'),
  format($$ select s::text from oml_submit('research/2026', 'two', 'text/plain', 'simulated', artifact => %L, idempotency_key => 'k2', attachments => '{b}', attachment_names => '{a}', attachment_types => '{text/plain}') s $$, :'artifact'));
select pg_temp.as_login('rita', format('select count(*) from oml_review_serve(%L)', :'artifact'));
select pg_temp.asks('approve', 'rita',
  format($$ select r::text from oml_verdict(%L, 'approve', 'good', idempotency_key => 'k1') r $$, :'artifact'),
  format($$ select r::text from oml_verdict(%L, 'reject', 'good', idempotency_key => 'k1') r $$, :'artifact'));
select pg_temp.asks('promote', 'olga',
  format($$ select r::text from oml_promote(%L, idempotency_key => 'k1') r $$, :'artifact'), format($$ select r::text from oml_promote(%L, 'why', idempotency_key => 'k1') r $$, :'artifact'));
select pg_temp.asks('reassign', 'olga',
  format($$ select r::text from oml_reassign(%L, 'archive', 'x', idempotency_key => 'k2') r $$, :'artifact'), format($$ select r::text from oml_reassign(%L, 'research/2026', 'x', idempotency_key => 'k2') r $$, :'artifact'));
select pg_temp.asks('end-simulation', 'olga',
  format($$ select r::text from oml_end_simulation(%L, 'x', version => 1, idempotency_key => 'k3') r $$, :'artifact'), format($$ select r::text from oml_end_simulation(%L, 'y', version => 1, idempotency_key => 'k3') r $$, :'artifact'));
select pg_temp.asks('demote', 'olga',
  format($$ select r::text from oml_demote(%L, 'x', idempotency_key => 'k4') r $$, :'artifact'), format($$ select r::text from oml_demote(%L, 'x', version => 2, idempotency_key => 'k4') r $$, :'artifact'));
select pg_temp.submitted(artifact => :'artifact', provenance => 'simulated');
select pg_temp.as_login('olga', 'select oml_move_workarea(''research/2026'', ''elsewhere'')');
select pg_temp.as_login('olga', 'select oml_remove_member(''elsewhere'', ''ann'')');

-- The state has moved on, and there are newer versions.
select pg_temp.events() as before \gset
select is(pg_temp.as_login(login, call), answer, format('%s is answered as the first time', verb)) from asked;
select is(pg_temp.events(), :before::bigint, 'and nothing is appended');
select set_eq('select verb from asked', $$ values ('submit'), ('submit again'), ('approve'), ('promote'), ('reassign'), ('end-simulation'), ('demote') $$, 'each verb that takes a key');
select pg_temp.refused_to(
  a.login, a.other, 'OM014',
  format('idempotency key %L was used for another request (seq %s)', k.key, (select j.seq from oml.journal j where j.tenant_id = :'globex' and j.principal = a.login and j.idempotency_key = k.key)),
  'A key stands for one request.%', format('another request under the key of %s is refused', a.verb)
)
from asked a, substring(a.call from 'idempotency_key => ''(k.)''') k (key);
-- One verb's key is no other verb's.
select pg_temp.refused_to('olga', format('select oml_demote(%L, ''x'', idempotency_key => ''k1'')', :'artifact'), 'OM014', format('idempotency key ''k1'' was used for another request (seq %s)', j.seq), '%', 'a key of promote is none of demote')
from oml.journal j where j.tenant_id = :'globex' and j.principal = 'olga' and j.idempotency_key = 'k1';
-- Nor another principal's.
select oml_grant('rolf', 'globex', '{submit,operate,review}');
grant oml_operator to rolf;
select is(pg_temp.outcome('rolf', format('select oml_end_simulation(%L, ''other'', idempotency_key => ''k1'')', :'artifact')), null, 'each principal has keys of its own');

-- A body that differs in one byte is another request; how it was encrypted is no part of it.
select isnt(ciphertext_digest, plaintext_digest, 'a retry was encrypted anew') from oml.artifact_version where artifact_id = :'artifact' and version = 1;
select is((select count(*) from oml.body where artifact_id = :'artifact'), 4::bigint, 'and what a retry encrypted is not kept');
select is((select count(*) from oml.dek where artifact_id = :'artifact'), 3::bigint, 'nor its key');

-- Each argument of a submission is part of the request.
select pg_temp.as_login('ben', $$ select artifact_id from oml_submit('elsewhere', 'one', 'text/plain', 'observed') $$) as one \gset
select pg_temp.as_login('ben', $$ select artifact_id from oml_submit('elsewhere', 'two', 'text/plain', 'observed') $$) as two \gset
create temporary table argument (name text, value text, other text);
insert into argument values
  ('workarea', '''elsewhere''', quote_literal(:'area')), ('body', '''x''', '''y'''), ('media_type', '''text/plain''', '''text/markdown'''), ('provenance', '''derived''', '''imported'''),
  ('artifact', quote_literal(:'one'), 'null'), ('artifact', quote_literal(:'one'), quote_literal(:'two')),
  ('derived_from', format('array[%L]', :'one' || '/1'), format('array[%L]', :'two' || '/1')), ('derived_from', format('array[%L]', :'one' || '/1'), format('array[%L, %L]', :'one' || '/1', :'two' || '/1')),
  ('attachment_names', '''{a,b}''', '''{a,c}'''), ('attachment_names', '''{a,b}''', '''{b,a}'''), ('attachment_types', '''{text/plain,text/plain}''', '''{text/plain,text/markdown}'''),
  ('attachments', 'array[''1'', ''2'']::bytea[]', 'array[''1'', ''3'']::bytea[]'), ('attachments', 'array[''1'', ''2'']::bytea[]', 'array[''2'', ''1'']::bytea[]');
insert into argument
select claim, quote_literal('the ' || claim), other from unnest(array['operation', 'app_version', 'invocation_id', 'subject_id']) claim, unnest(array['''other''', 'null']) other;
insert into argument
select 'caused_by', quote_literal(:'one'), other from unnest(array[quote_literal(:'two'), 'null']) other;
select set_eq(
  'select name from argument',
  $$ select name from pg_proc, unnest(proargnames) with ordinality a (name, n) where proname = 'oml_submit' and n <= pronargs and name not in ('tenant', 'idempotency_key') $$,
  'each argument there is'
);
-- The request, but for one argument of it. With two attachments, and with none.
create function pg_temp.request(but text default '', other text default '', without text default '') returns text language sql as $$
  select format('select s::text from oml_submit(idempotency_key => %L, %s) s', 'all' || without, string_agg(format('%I => %s', name, case name when but then other else value end), ', '))
  from (select distinct name, value from argument where name !~ nullif(without, '') is not false) a
$$;
select pg_temp.as_login('ben', pg_temp.request(without => without)) as answer, without into temporary table first_of from unnest(array['', '^attachment']) without;
select is(pg_temp.as_login('ben', pg_temp.request(without => without)), answer, format('the same arguments are the same request (%s)', without)) from first_of;
select pg_temp.refused_to(
  'ben', pg_temp.request(name, other, without), 'OM014',
  format('idempotency key %L was used for another request (seq %s)', 'all' || without, (answer::oml.submission_receipt).seq), '%', format('%s => %s is another request (%s)', name, other, without)
)
from argument, first_of where name !~ nullif(without, '') is not false;

-- So it is of what the client sealed; a retry of which is sealed anew, and signed anew.
select pg_temp.as_login('olga', 'select oml_add_member(''elsewhere'', ''ann'')');
select pg_temp.as_login('ann', $$ select artifact_id from oml_submit('elsewhere', 'one', 'text/plain', 'observed') $$) as one \gset
select pg_temp.as_login('ann', $$ select artifact_id from oml_submit('elsewhere', 'two', 'text/plain', 'observed') $$) as two \gset
select sha256('another seed') as other_seed \gset
select oml_issue_key(pg_temp.public_key(:'other_seed'), 'writer', 'globex', 'ann');
create function pg_temp.sealed_call(sealed text, other text default '', instead text default '') returns text language sql as $$
  select replace(format(
    'select s::text from oml_submit_sealed(idempotency_key => %L, workarea => %L, provenance => %L, derived_from => array[%L], operation => %L, app_version => %L, caused_by => %L, invocation_id => %L, subject_id => %L, %s) s',
    'sealed', 'elsewhere', 'derived', current_setting('test.one') || '/1', 'the op', 'the app', current_setting('test.one'), 'the call', 'the subject', sealed
  ), other, instead)
$$;
select set_config('test.one', :'one', true);
select pg_temp.as_login('ann', pg_temp.sealed_call(pg_temp.sealed_of(:'one', :'seed', 'x', 'a', 'b'))) as answer \gset
select is(pg_temp.as_login('ann', pg_temp.sealed_call(pg_temp.sealed_of(:'one', :'seed', 'x', 'a', 'b'))), :'answer', 'what is sealed and signed anew is the same request');
select pg_temp.refused_to(
  'ann', call, 'OM014', format('idempotency key ''sealed'' was used for another request (seq %s)', (:'answer'::oml.submission_receipt).seq), '%', format('%s is another request', what)
)
from (values
  ('another artifact', pg_temp.sealed_call(pg_temp.sealed_of(:'two', :'seed', 'x', 'a', 'b'))), ('a new artifact', pg_temp.sealed_call(pg_temp.sealed(:'seed', 'x', 'a', 'b'))),
  ('an unsigned one', pg_temp.sealed_call(pg_temp.sealed_of(:'one', null, 'x', 'a', 'b'))), ('one of another writer key', pg_temp.sealed_call(pg_temp.sealed_of(:'one', :'other_seed', 'x', 'a', 'b'))),
  ('another body', pg_temp.sealed_call(pg_temp.sealed_of(:'one', :'seed', 'y', 'a', 'b'))), ('another attachment', pg_temp.sealed_call(pg_temp.sealed_of(:'one', :'seed', 'x', 'a', 'c'))),
  ('a further attachment', pg_temp.sealed_call(pg_temp.sealed_of(:'one', :'seed', 'x', 'a', 'b', 'c')))
) v (what, call);
select pg_temp.refused_to(
  'ann', pg_temp.sealed_call(sealed, other, instead), 'OM014', format('idempotency key ''sealed'' was used for another request (seq %s)', (:'answer'::oml.submission_receipt).seq), '%',
  format('%s for %s is another request', instead, other)
)
from (select pg_temp.sealed_of(:'one', :'seed', 'x', 'a', 'b') as sealed offset 0) s, (values
  ('''elsewhere''', quote_literal(:'area')), ('''derived''', '''imported'''), (format('array[%L]', :'one' || '/1'), format('array[%L]', :'two' || '/1')), ('''the op''', '''other'''),
  ('''the app''', '''other'''), (format('caused_by => %L', :'one'), format('caused_by => %L', :'two')), ('''the call''', '''other'''), ('''the subject''', '''other'''),
  ('media_type => ''text/plain''', 'media_type => ''text/markdown'''), ('''{1,2}''', '''{1,3}'''), ('array_fill(''text/plain''::text, array[2])', '''{text/plain,text/markdown}''')
) v (other, instead);
select is(
  pg_temp.as_login('ann', replace(pg_temp.sealed_call(pg_temp.sealed(:'seed', 'x')), '''sealed''', '''sealed new''')), first_answer,
  'a new artifact''s retry has another id, and is the same request'
)
from (select pg_temp.as_login('ann', replace(pg_temp.sealed_call(pg_temp.sealed(:'seed', 'x')), '''sealed''', '''sealed new''')) as first_answer offset 0) f;
select pg_temp.as_login('ann', $$ select s::text from oml_submit('elsewhere', 'x', 'text/plain', 'observed', idempotency_key => 'by whom') s $$) as answer \gset
select pg_temp.refused_to(
  'ann', format('select oml_submit_sealed(idempotency_key => %L, workarea => %L, provenance => %L, %s)', 'by whom', 'elsewhere', 'observed', pg_temp.sealed(null, 'x')),
  'OM014', format('idempotency key ''by whom'' was used for another request (seq %s)', (:'answer'::oml.submission_receipt).seq), '%', 'what the client sealed is no retry of what the server did'
);

select is_empty($$ select * from oml_fold_check('globex') $$, 'the state is what the journal says');
select is_empty($$ select * from oml_verify_chain('globex') where fault is not null $$, 'and the chain verifies');
select * from finish();
rollback;
