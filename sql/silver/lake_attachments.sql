-- What silver.attachments is to hold of the versions that outbox rows in a range release: a row an attachment, from the
-- signed events. Where the journal has another number of them than the submission's event says, each row is at fault.
create function oml.lake_attachments(after_seq bigint, upto bigint)
returns table (
  outbox_seq bigint, tenant_id text, artifact_id text, version bigint, part int, name text, media_type text, bytes bigint,
  plaintext_digest bytea, ciphertext_digest bytea, submitted_at timestamptz, attached_seq bigint,
  is_whole boolean, is_new boolean, outbox_seqs bigint[], fault text
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
    select
      o.seq as outbox_seq, o.tenant_id, o.chain_seq, e.seq as found_seq, e.artifact_id, e.artifact_version as version,
      exists (select from oml.dead_letter d where d.requeued_seq = o.seq) as is_requeued
    from oml.outbox o
    left join oml.journal e on e.tenant_id = o.tenant_id and e.seq = o.chain_seq
    where o.target = 'silver.attachments' and o.seq > after_seq and o.seq <= upto
      and not exists (select from oml.dead_letter d where d.outbox_seq = o.seq)
  ),
  touched as (
    select
      max(q.outbox_seq) as outbox_seq, q.tenant_id, q.artifact_id, q.version, bool_and(q.found_seq is not null) as is_found,
      not bool_or(q.is_requeued) as is_new, array_agg(q.outbox_seq order by q.outbox_seq) as outbox_seqs
    from queued q
    group by q.tenant_id, q.artifact_id, q.version
  ),
  due as (
    select t.*, s.seq as submitted_seq, s.occurred_at as submitted_at, jsonb_array_length(s.payload -> 'attachments') as many
    from touched t
    left join oml.artifact_version v on v.tenant_id = t.tenant_id and v.artifact_id = t.artifact_id and v.version = t.version
    left join oml.journal s on s.tenant_id = v.tenant_id and s.seq = v.submitted_seq and s.type = 'submission.submit'
      and s.artifact_id = t.artifact_id and s.artifact_version = t.version
  )
  select
    d.outbox_seq, d.tenant_id::text, d.artifact_id::text, d.version, (a.payload ->> 'part')::int, a.payload ->> 'name', a.payload ->> 'media_type',
    (a.payload ->> 'bytes')::bigint, a.plaintext_digest, a.ciphertext_digest, d.submitted_at, a.seq,
    true, d.is_new, d.outbox_seqs,
    case
      when d.submitted_seq is null then 'the event of its submission is not where oml.artifact_version says'
      when d.many <> count(a.seq) over (partition by d.tenant_id, d.artifact_id, d.version)
        then format('its submission has %s attachments, the journal %s', d.many, count(a.seq) over (partition by d.tenant_id, d.artifact_id, d.version))
    end
  from due d
  left join lateral (
    select j.seq, j.payload, j.plaintext_digest, j.ciphertext_digest
    from oml.artifact_event e join oml.journal j on j.tenant_id = e.tenant_id and j.seq = e.seq
    where e.tenant_id = d.tenant_id and e.artifact_id = d.artifact_id
      and e.seq > d.submitted_seq and e.seq <= d.submitted_seq + d.many -- they follow it, see oml.store_submission
      and j.artifact_version = d.version and j.type = 'submission.attach'
  ) a on true
  where not d.is_found or d.many is distinct from 0 or a.seq is not null
  order by d.outbox_seq, (a.payload ->> 'part')::int;
end
$$;
comment on function oml.lake_attachments(bigint, bigint)
  is 'Rows of silver.attachments of what outbox rows in a range release. Needs operate or audit on the provider.';
