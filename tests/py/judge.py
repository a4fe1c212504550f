"""What a lake must hold, by other code than ours: silver from the fold, gold from bronze."""

from typing import Any

import polars as pl
import pyarrow as pa

from lakes import delta, value
from oml.lake.schema import (
    BRONZE_EVENTS,
    GOLD_LINEAGE,
    GOLD_TENANT_DAILY,
    SILVER_ATTACHMENTS,
    SILVER_CLAIMS,
    LakeTable,
)
from systems import System

_CLAIMS = """
    select v.tenant_id::text, v.artifact_id::text, v.version, v.workarea_id::text, v.path, s.writer,
      v.author, v.provenance, v.media_type, v.bytes, v.attachments, v.plaintext_digest,
      v.ciphertext_digest, v.dek_id::text, v.submitted_seq, v.submitted_at, p.seq, p.occurred_at,
      v.state, v.state_seq, l.occurred_at, b.ciphertext
    from oml.artifact_version v
    join oml.journal s on s.tenant_id = v.tenant_id and s.seq = v.submitted_seq
    join oml.journal l on l.tenant_id = v.tenant_id and l.seq = v.state_seq
    join oml.journal p on p.tenant_id = v.tenant_id and p.artifact_id = v.artifact_id
      and p.artifact_version = v.version and p.type = 'artifact.promoted'
    join oml.body b on b.tenant_id = v.tenant_id and b.artifact_id = v.artifact_id
      and b.version = v.version and b.part = 0
    where not exists (
      select from oml.dead_letter d where d.artifact_id = v.artifact_id
        and d.artifact_version = v.version and d.target = 'silver.claims' and requeued_seq is null
    )
    order by 1, 2, 3
"""
_ATTACHMENTS = """
    select a.tenant_id::text, a.artifact_id::text, a.version, a.part, a.name, a.media_type, a.bytes,
      a.plaintext_digest, a.ciphertext_digest, v.submitted_at, a.attached_seq
    from oml.attachment a
    join oml.artifact_version v on v.tenant_id = a.tenant_id and v.artifact_id = a.artifact_id
      and v.version = a.version
    where exists (
      select from oml.journal p where p.tenant_id = a.tenant_id and p.artifact_id = a.artifact_id
        and p.artifact_version = a.version and p.type = 'artifact.promoted'
    ) and not exists (
      select from oml.dead_letter d where d.artifact_id = a.artifact_id
        and d.artifact_version = a.version and d.target = 'silver.attachments'
        and requeued_seq is null
    )
    order by 1, 2, 3, 4
"""
_LINEAGE = """
    select o.seq, j.tenant_id::text, j.seq, e.kind, e.a, e.b
    from oml.outbox o join oml.journal j on j.tenant_id = o.tenant_id and j.seq = o.chain_seq
    cross join lateral (
      select 'caused_by' as kind, j.event_id::text as a, j.caused_by::text as b
      where j.caused_by is not null
      union all
      select 'supersedes', j.artifact_id || '/' || j.artifact_version,
        j.artifact_id || '/' || j.artifact_version - 1
      where j.type = 'submission.submit' and j.artifact_version > 1
      union all
      select 'derived_from', d.artifact_id || '/' || d.version,
        d.source_artifact_id || '/' || d.source_version
      from oml.derived_from d
      where j.type = 'submission.submit' and d.tenant_id = j.tenant_id
        and d.artifact_id = j.artifact_id and d.version = j.artifact_version
      union all
      select 'attachment_of', a.artifact_id || '/' || a.version || '/' || a.part,
        a.artifact_id || '/' || a.version
      from oml.attachment a where a.tenant_id = j.tenant_id and a.attached_seq = j.seq
    ) e
    where o.target = 'bronze.events'
    order by 1, 4, 6
"""


def held(system: System, table: LakeTable, *without: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table, without some columns, in the order of its key."""
    found = pa.RecordBatchReader.from_stream(delta(system, table).scan()).read_all()
    names = [name for name in found.column_names if name not in without]
    rows = sorted(found.to_pylist(), key=lambda row: tuple(row[name] for name in table.key))
    return [tuple(row[name] for name in names) for row in rows]


def expect_silver(system: System) -> None:
    """Insist that silver is the fold of what was released: each version once, as it is now."""
    claims = system.superuser.execute(_CLAIMS.encode()).fetchall()
    assert held(system, SILVER_CLAIMS, "outbox_seq") == claims
    attachments = system.superuser.execute(_ATTACHMENTS.encode()).fetchall()
    assert held(system, SILVER_ATTACHMENTS, "outbox_seq") == attachments


def expect_gold(system: System) -> None:
    """Insist that gold is what bronze sums to, and the edges those of journal and fold."""
    bronze = pl.from_arrow(pa.RecordBatchReader.from_stream(delta(system, BRONZE_EVENTS).scan()))
    assert isinstance(bronze, pl.DataFrame)
    daily = (
        bronze.with_columns(day=pl.col("occurred_at").dt.date())
        .group_by("tenant_id", "day", "type")
        .agg(events=pl.len(), bytes=pl.col("bytes").sum())
        .sort("tenant_id", "day", "type")
    )
    assert held(system, GOLD_TENANT_DAILY) == daily.rows()
    assert sum(daily["events"]) == value(system.superuser, "select count(*) from oml.journal")
    edges = system.superuser.execute(_LINEAGE.encode()).fetchall()
    assert held(system, GOLD_LINEAGE) == edges
