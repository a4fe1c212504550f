-- What silver is to hold, as SQL hands it out, and what passing over and queueing again leave in the journal.
begin;
\ir shared/refused.sql
\ir shared/submissions.sql
select * from no_plan();

create temporary view claim as select * from oml.lake_claims(0, 9223372036854775807);
create temporary view queued as
select o.seq, o.target, j.type, j.artifact_id from oml.outbox o join oml.journal j on j.tenant_id = o.tenant_id and j.seq = o.chain_seq;
create function pg_temp.outbox_seq(artifact uuid, target text, type text) returns bigint language sql as $$
  select q.seq from queued q where q.artifact_id = artifact and q.target = outbox_seq.target and q.type = outbox_seq.type
$$;

select pg_temp.brought_to('promoted') as promoted \gset
select pg_temp.brought_to('demoted') as demoted \gset
select pg_temp.brought_to('reassigned') as reassigned \gset
select pg_temp.brought_to('held') as held \gset
select pg_temp.brought_to('simulation-ended', 'simulated') as ended \gset

select set_eq(
  'select artifact_id::uuid, version, state, is_whole, is_new, fault from claim',
  format(
    $$ values (%L::uuid, 1::bigint, 'promoted', true, true, null::text), (%L, 1, 'demoted', true, true, null), (%L, 1, 'reassigned', true, true, null) $$,
    :'promoted', :'demoted', :'reassigned'
  ), 'one row a version that was released, as it is after its last change'
);
select results_eq(
  format('select ciphertext, octet_length(ciphertext_digest) from claim where artifact_id = %L', :'demoted'),
  format('select ciphertext, 32 from oml.body where artifact_id = %L and part = 0', :'demoted'), 'with its body as stored'
);
select results_eq(
  format('select is_whole, state, ciphertext from oml.lake_claims(%s, 9223372036854775807) where artifact_id = %L', pg_temp.outbox_seq(:'demoted', 'silver.claims', 'artifact.promoted'), :'demoted'),
  $$ values (false, 'demoted', null::bytea) $$, 'a change of state alone comes without'
);
select results_eq(
  format('select is_whole, state from oml.lake_claims(0, %s) where artifact_id = %L', pg_temp.outbox_seq(:'demoted', 'silver.claims', 'artifact.promoted'), :'demoted'),
  $$ values (true, 'promoted') $$, 'and a range that ends before it is as it was then'
);
select isnt(
  (select workarea_id from claim where artifact_id = :'reassigned'), (select workarea_id from claim where artifact_id = :'promoted'),
  'a reassigned one lies in its new workarea'
);

-- Passing over.
select pg_temp.outbox_seq(:'promoted', 'silver.claims', 'artifact.promoted') as row_seq \gset
select oml.lake_skip(:row_seq, 'damaged', 3) as event_seq \gset
select is(oml.lake_skip(:row_seq, 'another reason', 9), :event_seq::bigint, 'a second call says the same');
select results_eq(
  $$ select payload - 'tenant_id' - 'artifact_id' from oml.journal where type = 'lake.materialize-skipped' $$,
  format($$ select jsonb_build_object('outbox_seq', %s, 'target', 'silver.claims', 'seq', max(seq), 'version', 1, 'reason', 'damaged', 'attempts', 3)
            from oml.journal where artifact_id = %L $$, :row_seq, :'promoted'),
  'and is journalled once, with all there is to know'
);
select results_eq(
  'select outbox_seq, target, reason, attempts, skipped_seq, requeued_seq from oml.dead_letter',
  format('values (%s::bigint, %L, %L, 3, %s::bigint, null::bigint)', :row_seq, 'silver.claims', 'damaged', :event_seq), 'beside its row'
);
select is_empty(format('select from claim where artifact_id = %L', :'promoted'), 'no reading returns it any more');
select pg_temp.as_login('olga', format('select oml_demote(%L, %L)', :'promoted', 'wrong'));
select results_eq(
  format('select state, is_whole, fault from claim where artifact_id = %L', :'promoted'),
  $$ values ('demoted', false, 'the row that it changes is a dead letter') $$, 'what changes it later is told from what can be written'
);
select oml.lake_skip(pg_temp.outbox_seq(:'promoted', 'silver.claims', 'artifact.demoted'), 'follows', 3);
select pg_temp.refused(format('select oml.lake_skip(%s, %L, 1)', seq, 'x'), 'OM240', format('outbox row %s cannot be passed over', seq), 'Only what is derived%', format('row %s is refused', seq))
from (select min(seq) as seq from oml.outbox where target = 'bronze.events' union all select 999999) s;

-- Queueing again.
select pg_temp.refused(format('select oml_requeue(%s, %L)', :row_seq, ''), 'OM164', 'this needs a reason of 1 to 512 bytes', '%journalled%', 'queueing again for no reason');
select pg_temp.refused('select oml_requeue(1, ''x'')', 'OM241', 'there is no dead letter with outbox seq 1', 'oml lake dead-letters%', 'what is no dead letter');
select oml_requeue(:row_seq, 'mended') as again \gset
select is(oml_requeue(:row_seq, 'twice'), :again::bigint, 'a second call makes no second row');
select is((select count(*) from oml.dead_letter where requeued_seq = :again), 2::bigint, 'all dead letters of the version are settled');
select is((select count(*) from oml.outbox where seq > :row_seq and target = 'silver.claims' and seq = :again), 1::bigint, 'by one row of the outbox');
select results_eq(
  format('select outbox_seq, state, is_whole, is_new, fault from claim where artifact_id = %L', :'promoted'),
  format('values (%s::bigint, %L, true, false, null::text)', :again, 'demoted'), 'which stands for the version as it is now, whole'
);
select results_eq(
  $$ select (payload ->> 'requeued_as')::bigint, jsonb_array_length(payload -> 'outbox_seqs'), payload ->> 'reason' from oml.journal where type = 'lake.requeued' $$,
  format('values (%s::bigint, 2, %L)', :again, 'mended'), 'journalled'
);
select results_eq(
  'select count(*), count(requeued_as) from oml.lake_dead_letters()', 'values (2::bigint, 2::bigint)', 'and the list says so'
);

select * from finish();
rollback;
