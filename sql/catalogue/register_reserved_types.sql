create function oml.register_reserved_types()
returns void
language sql
volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into oml.event_type (type, required_keys, max_bytes, reserved, description) values
    ('key.issued', '{kid,public_key,algorithm,purpose}', 4096, true, 'A key became valid. The first event of the provider chain issues the root key.'),
    ('key.retired', '{kid,purpose}', 65536, true, 'A key may sign no more. For the signing key in force, which signs this: its successor, and where it leaves each tenant''s chain, by seq and hash.'),
    ('key.rotated', '{kid,predecessor}', 4096, true, 'The successor signs from here on, and signs this: it takes over where the key.retired events before it say.'),
    ('tenant.created', '{tenant_id,name}', 4096, true, 'A tenant was created; its chain''s genesis event refers to this one.'),
    ('tenant.genesis', '{created_by}', 4096, true, 'First event of a tenant''s chain.'),
    ('membership.granted', '{login,tenant_id,tenant,principal,permissions}', 4096, true, 'A login may act in a tenant as this principal with these permissions.'),
    ('membership.revoked', '{login,tenant_id,tenant,principal}', 4096, true, 'A login may no longer act in a tenant as this principal.'),
    ('impersonation.started', '{session_id,login,by_principal,tenant_id,tenant,principal,reason,expires_at}', 4096, true, 'A login may act as another''s principal for a while; the reason is in every event made so.'),
    ('impersonation.ended', '{session_id}', 4096, true, 'An impersonation session was ended before its time.'),
    ('journal.loss-accepted', '{reason,losses,page,pages}', 65536, true, 'Events were lost for good and it was decided to go on without them: which, by tenant and chain seq, and why.'),
    ('database.adopted', '{from,to,reason}', 4096, true, 'A logical copy of the database took the original''s place.'),
    ('event-type.registered', '{type,schema_version,json_schema,schema_digest,targets,pii_class,state_keys,required_keys,max_bytes,description}', 65536, true, 'A version of an event type was added to the catalogue.'),
    ('event-type.retired', '{type,schema_versions}', 4096, true, 'Versions of an event type take no new events.'),
    ('workarea.created', '{workarea_id,path}', 4096, true, 'A workarea was made at a path.'),
    ('workarea.moved', '{workarea_id,from,path}', 4096, true, 'A workarea has another path; its id stays.'),
    ('workarea.joined', '{workarea_id,principal}', 4096, true, 'A principal became a member of a workarea.'),
    ('workarea.left', '{workarea_id,principal}', 4096, true, 'A principal is no longer a member of a workarea.'),
    ('submission.submit', '{workarea_id,path,provenance,media_type,bytes,attachments,derived_from,dek_id,kek_epoch,sealed_by,to}', 65536, true, 'A version of an artifact was submitted; the event has both digests of its body and of each attachment. A writer''s own signature is named by the digest of its envelope.'),
    ('submission.attach', '{part,name,media_type,bytes}', 4096, true, 'An attachment of a submission; the event has both digests of it.'),
    ('review.serve', '{parts}', 65536, true, 'The parts of a version, by their digests, were served to a reviewer.'),
    ('review.verdict', '{verb,from,to,verdict,review,findings_accepted}', 65536, true, 'A reviewer approved or rejected a version; review says for each part what that means.'),
    ('lake.materialize-skipped', '{outbox_seq,target,tenant_id,seq,artifact_id,version,reason,attempts}', 4096, true, 'The lake writer passed over an outbox row that it could not apply.'),
    ('lake.requeued', '{outbox_seqs,requeued_as,target,tenant_id,artifact_id,version,reason}', 65536, true, 'What the lake writer had passed over was queued again.')
  on conflict do nothing;
  insert into oml.event_type (type, required_keys, max_bytes, reserved, targets, description) values
    ('artifact.promoted', '{verb,from,to}', 4096, true, '{bronze.events,silver.claims,silver.attachments,bodies}', 'An approved version was released: the one event that queues content for the lake and the object store.'),
    ('artifact.demoted', '{verb,from,to,reason}', 4096, true, '{bronze.events,silver.claims}', 'A released version was withdrawn.'),
    ('artifact.reassigned', '{verb,from,to,reason,workarea_id,path}', 4096, true, '{bronze.events,silver.claims}', 'A released version was moved to another workarea.'),
    ('artifact.simulation-ended', '{verb,from,to,reason}', 4096, true, '{bronze.events,silver.claims}', 'The simulation that made a version is over.')
  on conflict do nothing
$$;
