create sequence if not exists oml.outbox_seq as bigint minvalue 1 cache 1;
create table if not exists oml.outbox (
  seq bigint not null,
  tenant_id uuid not null,
  chain_seq bigint not null,
  target text not null,
  constraint outbox_pkey primary key (seq)
);
comment on table oml.outbox is 'One row for each derived thing an event must reach. Written by the journal''s insert, drained by the lake writer, never pruned.';
comment on column oml.outbox.seq is 'Outbox seq: drawn at insert under the fence''s rules, not contiguous, not in commit order.';
comment on column oml.outbox.tenant_id is 'Tenant of the event.';
comment on column oml.outbox.chain_seq is 'Chain seq of the event.';
comment on column oml.outbox.target is 'Lake table the event goes to.';
comment on sequence oml.outbox_seq is 'Numbers of the outbox. CACHE must stay 1: a cached number would appear below the cut.';
