-- What the object store is to hold for the outbox rows of target bodies in a range, at most so many: one row a
-- part, 0 the body, then the attachments. The digests are those of the signed events of the submission;
-- oml.artifact_version only tells where these begin. What cannot be moved says why in fault. A row whose event
-- is gone comes with nulls; an event that is about no version has no content and is left out.
create function oml.lake_bodies(after_seq bigint, upto bigint, max_rows int)
returns table (
  outbox_seq bigint, tenant_id text, artifact_id text, version bigint, part int,
  plaintext_digest bytea, ciphertext_digest bytea, bytes bigint, fault text
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set enable_hashjoin = off -- a step has few such rows, and each of these tables many
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
begin
  perform oml.require_provider('operate', 'audit');
  return query
  with queued as (
    select o.seq as outbox_seq, o.tenant_id, o.chain_seq, e.artifact_id, e.artifact_version as version
    from oml.outbox o
    left join oml.journal e on e.tenant_id = o.tenant_id and e.seq = o.chain_seq
    where o.target = 'bodies' and o.seq > after_seq and o.seq <= upto
      and (e.seq is null or e.artifact_id is not null)
      and not exists (select from oml.dead_letter d where d.outbox_seq = o.seq)
    order by o.seq
    limit max_rows
  )
  select
    q.outbox_seq, q.tenant_id::text, q.artifact_id::text, q.version, p.part,
    a.plaintext_digest, a.ciphertext_digest, octet_length(b.ciphertext)::bigint,
    case
      when s.seq is null then 'the event of its submission is not where oml.artifact_version says'
      when not oml.was_released(q.tenant_id, q.artifact_id, q.version, q.chain_seq) then 'it was never released'
      when a.seq is null then format('the event of part %s is not behind that of its submission', p.part)
      when a.plaintext_digest is null or a.ciphertext_digest is null
        or position(a.plaintext_digest in a.envelope) = 0 or position(a.ciphertext_digest in a.envelope) = 0
      then format('the digests that the journal shows for part %s are not those that were signed', p.part)
      when b.ciphertext is null then format('part %s is not stored', p.part)
    end
  from queued q
  left join oml.artifact_version v on v.tenant_id = q.tenant_id and v.artifact_id = q.artifact_id and v.version = q.version
  left join oml.journal s on s.tenant_id = v.tenant_id and s.seq = v.submitted_seq and s.type = 'submission.submit'
    and s.artifact_id = q.artifact_id and s.artifact_version = q.version
  left join lateral generate_series(0, jsonb_array_length(s.payload -> 'attachments')) p (part) on true
  left join oml.journal a on a.tenant_id = s.tenant_id and a.seq = s.seq + p.part
    and a.artifact_id = q.artifact_id and a.artifact_version = q.version
    and a.type = case p.part when 0 then 'submission.submit' else 'submission.attach' end
    and (p.part = 0 or (a.payload ->> 'part')::int = p.part)
  left join oml.body b on b.tenant_id = q.tenant_id and b.artifact_id = q.artifact_id and b.version = q.version and b.part = p.part
  order by q.outbox_seq, p.part;
end
$$;
comment on function oml.lake_bodies(bigint, bigint, int)
  is 'Stored parts of the released versions that outbox rows in a range queue for the object store, with their signed digests. Needs operate or audit on the provider.';
