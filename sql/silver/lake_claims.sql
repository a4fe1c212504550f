-- What silver.claims is to hold of the versions that outbox rows in a range are about: one row a version, as it is after
-- the last of them. The body comes with a version that is to be written whole: with its release, or queued
-- again. Changes of state of a version that was never released concern nobody here. A row that cannot be
-- written says why in fault, with the outbox rows that it stands for. A change whose release is a dead letter says so
-- once, and is one itself from then on; it is returned all the same: a row that is there after all, written by
-- whoever read it while it could be, is changed by it, and where there is none nothing happens.
-- Everything but the ciphertext is the journal's; oml.artifact_version only tells where the submission's event is.
create function oml.lake_claims(after_seq bigint, upto bigint)
returns table (
  outbox_seq bigint, tenant_id text, artifact_id text, version bigint, workarea_id text, path text, writer text, principal text,
  provenance text, media_type text, bytes bigint, attachments int, plaintext_digest bytea, ciphertext_digest bytea, dek_id text,
  submitted_seq bigint, submitted_at timestamptz, promoted_seq bigint, promoted_at timestamptz, state text, state_seq bigint, state_at timestamptz,
  ciphertext bytea, is_whole boolean, is_new boolean, outbox_seqs bigint[], fault text
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set enable_hashjoin = off -- a batch has few such rows, and each of these tables many
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
begin
  perform oml.require_provider('operate', 'audit');
  return query
  with queued as (
    select r.*
    from (
      select
        o.seq as outbox_seq, o.tenant_id, o.chain_seq, e.artifact_id, e.artifact_version as version,
        e.type = 'artifact.promoted' as is_release,
        exists (select from oml.dead_letter d where d.requeued_seq = o.seq) as is_requeued,
        exists (select from oml.dead_letter d where d.outbox_seq = o.seq) as is_dead
      from oml.outbox o
      left join oml.journal e on e.tenant_id = o.tenant_id and e.seq = o.chain_seq
      where o.target = 'silver.claims' and o.seq > after_seq and o.seq <= upto
    ) r
    where not (r.is_dead and (r.is_release or r.is_requeued))
  ),
  touched as (
    select
      max(q.outbox_seq) as outbox_seq, q.tenant_id, q.artifact_id, q.version, max(q.chain_seq) as chain_seq,
      bool_and(q.is_dead) as is_dead, bool_or(q.is_release or q.is_requeued) as is_whole, not bool_or(q.is_requeued) as is_new,
      array_agg(q.outbox_seq order by q.outbox_seq) as outbox_seqs
    from queued q
    group by q.tenant_id, q.artifact_id, q.version
  )
  select
    t.outbox_seq, t.tenant_id::text, t.artifact_id::text, t.version, coalesce(moved.payload, s.payload) ->> 'workarea_id', s.payload ->> 'path',
    s.writer, s.principal, s.payload ->> 'provenance', s.payload ->> 'media_type', (s.payload ->> 'bytes')::bigint,
    jsonb_array_length(s.payload -> 'attachments'), s.plaintext_digest, s.ciphertext_digest, s.payload ->> 'dek_id',
    s.seq, s.occurred_at, released.seq, released.occurred_at, l.payload ->> 'to', l.seq, l.occurred_at,
    b.ciphertext, t.is_whole, t.is_whole and t.is_new, t.outbox_seqs,
    case
      when s.seq is null then 'the event of its submission is not where oml.artifact_version says'
      when t.is_whole and b.ciphertext is null then 'its body is not stored'
      when not t.is_whole and not t.is_dead and exists (
        select from oml.dead_letter d
        where d.tenant_id = t.tenant_id and d.artifact_id = t.artifact_id and d.artifact_version = t.version
          and d.target = 'silver.claims' and d.requeued_seq is null and d.outbox_seq < t.outbox_seq
      ) then 'the row that it changes is a dead letter'
    end
  from touched t
  left join oml.journal l on l.tenant_id = t.tenant_id and l.seq = t.chain_seq
  left join oml.artifact_version v on v.tenant_id = t.tenant_id and v.artifact_id = t.artifact_id and v.version = t.version
  left join oml.journal s on s.tenant_id = v.tenant_id and s.seq = v.submitted_seq and s.type = 'submission.submit'
    and s.artifact_id = t.artifact_id and s.artifact_version = t.version
  left join lateral (
    select j.seq, j.occurred_at from oml.artifact_event a join oml.journal j on j.tenant_id = a.tenant_id and j.seq = a.seq
    where a.tenant_id = t.tenant_id and a.artifact_id = t.artifact_id and a.seq between coalesce(v.submitted_seq, 0) and t.chain_seq
      and j.artifact_version = t.version and j.type = 'artifact.promoted'
    order by a.seq limit 1
  ) released on true
  left join lateral (
    select j.payload from oml.artifact_event a join oml.journal j on j.tenant_id = a.tenant_id and j.seq = a.seq
    where a.tenant_id = t.tenant_id and a.artifact_id = t.artifact_id and a.seq between coalesce(v.submitted_seq, 0) and t.chain_seq
      and j.artifact_version = t.version and j.type = 'artifact.reassigned'
    order by a.seq desc limit 1
  ) moved on true
  left join oml.body b on t.is_whole and b.tenant_id = t.tenant_id and b.artifact_id = t.artifact_id and b.version = t.version and b.part = 0
  where l.seq is null or released.seq is not null
  order by t.outbox_seq;
end
$$;
comment on function oml.lake_claims(bigint, bigint)
  is 'Rows of silver.claims as of the outbox rows in a range, one a version, with the ciphertext of those to be written whole. Needs operate or audit on the provider.';
