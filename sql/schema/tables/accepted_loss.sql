create table if not exists oml.accepted_loss (
  accepted_seq bigint not null,
  tenant_id uuid not null,
  tenant text,
  journal_head bigint not null,
  lost_from bigint,
  lost_to bigint,
  lake_events bigint not null default 0,
  outbox_after bigint not null,
  outbox_upto bigint not null,
  constraint accepted_loss_pkey primary key (accepted_seq, tenant_id),
  constraint accepted_loss_range_check check (num_nulls(lost_from, lost_to) in (0, 2) and lost_from >= 1 and lost_from <= journal_head + 1 and lost_from <= lost_to),
  constraint accepted_loss_events_check check (lake_events >= 0 and lake_events <= outbox_upto - outbox_after and (lake_events = 0 or lost_from is not null)),
  constraint accepted_loss_outbox_check check (outbox_upto >= outbox_after)
);
comment on table oml.accepted_loss is 'Events that are gone from the journal for good, and were accepted as lost. A projection of the provider chain''s journal.loss-accepted, for the lake writer and the reconciler.';
comment on column oml.accepted_loss.accepted_seq is 'Provider chain seq of the journal.loss-accepted.';
comment on column oml.accepted_loss.tenant_id is 'Tenant whose events are lost; it may itself be lost, and then oml.tenant does not know it.';
comment on column oml.accepted_loss.tenant is 'Its name, where it is known.';
comment on column oml.accepted_loss.journal_head is 'Last chain seq the journal had then; 0 for a tenant that is lost itself.';
comment on column oml.accepted_loss.lost_from is 'First chain seq that is known to be lost; null where only a newer tlog generation was seen.';
comment on column oml.accepted_loss.lost_to is 'Last chain seq that is known to be lost.';
comment on column oml.accepted_loss.lake_events is 'How many of them the lake holds.';
comment on column oml.accepted_loss.outbox_after is 'The lake''s rows of lost events have outbox seqs above this one …';
comment on column oml.accepted_loss.outbox_upto is '… and up to this one. The outbox went on above it.';
