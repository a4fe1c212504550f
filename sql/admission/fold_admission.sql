-- What events about workareas, submissions and reviews imply: the rows of their state, in chain order. Of what
-- oml_submit stores oml.store_submission inserts them itself.
-- oml_fold_check computes the same from the journal in another way, and compares.
create function oml.fold_admission(tenant_id uuid, seqs bigint[])
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  e record;
  stored bigint;
  due bigint;
begin
  for e in
    select j.tenant_id, j.seq, j.type, j.occurred_at, j.principal, j.artifact_id, j.artifact_version as version,
      j.plaintext_digest, j.ciphertext_digest, j.payload as said
    from oml.journal j
    where j.tenant_id = fold_admission.tenant_id and j.seq = any (seqs)
      and split_part(j.type, '.', 1) in ('workarea', 'submission', 'review', 'artifact')
    order by j.seq
  loop
    due := 1;
    case e.type
      when 'submission.submit' then
        insert into oml.artifact_version (
          tenant_id, artifact_id, version, workarea_id, path, author, provenance, media_type, bytes, attachments,
          plaintext_digest, ciphertext_digest, dek_id, submitted_seq, submitted_at, state, state_seq
        ) values (
          e.tenant_id, e.artifact_id, e.version, (e.said ->> 'workarea_id')::uuid, e.said ->> 'path', e.principal,
          e.said ->> 'provenance', e.said ->> 'media_type', (e.said ->> 'bytes')::bigint, jsonb_array_length(e.said -> 'attachments'),
          e.plaintext_digest, e.ciphertext_digest, (e.said ->> 'dek_id')::uuid, e.seq, e.occurred_at, e.said ->> 'to', e.seq
        );
        get diagnostics stored = row_count;
        if stored = 1 and e.said -> 'derived_from' <> '[]' then
          insert into oml.derived_from (tenant_id, artifact_id, version, source_artifact_id, source_version)
          select e.tenant_id, e.artifact_id, e.version, (s ->> 'artifact_id')::uuid, (s ->> 'version')::bigint
          from jsonb_array_elements(e.said -> 'derived_from') s;
          get diagnostics stored = row_count;
          due := jsonb_array_length(e.said -> 'derived_from');
        end if;
      when 'submission.attach' then
        insert into oml.attachment (
          tenant_id, artifact_id, version, part, name, media_type, bytes, plaintext_digest, ciphertext_digest, attached_seq
        ) values (
          e.tenant_id, e.artifact_id, e.version, (e.said ->> 'part')::int, e.said ->> 'name', e.said ->> 'media_type',
          (e.said ->> 'bytes')::bigint, e.plaintext_digest, e.ciphertext_digest, e.seq
        );
        get diagnostics stored = row_count;
      when 'review.serve' then
        insert into oml.served as s (tenant_id, artifact_id, version, part, principal, served_seq)
        select e.tenant_id, e.artifact_id, e.version, (p ->> 'part')::int, e.principal, e.seq
        from jsonb_array_elements(e.said -> 'parts') p
        on conflict on constraint served_pkey do update set served_seq = excluded.served_seq;
        get diagnostics stored = row_count;
        due := jsonb_array_length(e.said -> 'parts');
      when 'review.verdict', 'artifact.promoted', 'artifact.demoted', 'artifact.reassigned', 'artifact.simulation-ended' then
        update oml.artifact_version v set
          state = e.said ->> 'to', state_seq = e.seq, reason = e.said ->> 'reason',
          reviewer = case e.type when 'review.verdict' then e.principal else v.reviewer end,
          workarea_id = coalesce((e.said ->> 'workarea_id')::uuid, v.workarea_id)
        where v.tenant_id = e.tenant_id and v.artifact_id = e.artifact_id and v.version = e.version;
        get diagnostics stored = row_count;
      when 'workarea.created' then
        insert into oml.workarea (tenant_id, workarea_id, path, created_seq, last_seq)
        values (e.tenant_id, (e.said ->> 'workarea_id')::uuid, e.said ->> 'path', e.seq, e.seq);
        get diagnostics stored = row_count;
      when 'workarea.moved' then
        update oml.workarea w set path = e.said ->> 'path', last_seq = e.seq
        where w.tenant_id = e.tenant_id and w.workarea_id = (e.said ->> 'workarea_id')::uuid;
        get diagnostics stored = row_count;
      when 'workarea.joined', 'workarea.left' then
        insert into oml.workarea_member as m (tenant_id, workarea_id, principal, is_member, last_seq)
        values (e.tenant_id, (e.said ->> 'workarea_id')::uuid, e.said ->> 'principal', e.type = 'workarea.joined', e.seq)
        on conflict on constraint workarea_member_pkey do update set is_member = excluded.is_member, last_seq = excluded.last_seq;
        get diagnostics stored = row_count;
      else
        stored := due;
    end case;
    if stored = due and e.artifact_id is not null then
      insert into oml.artifact_event (tenant_id, artifact_id, seq) values (e.tenant_id, e.artifact_id, e.seq);
      get diagnostics stored = row_count;
      due := 1;
    end if;
    if stored <> due then
      perform oml.refuse_unstored();
    end if;
  end loop;
end
$$;
