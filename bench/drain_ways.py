"""The ways of bench_drain.py to bring events into a Delta table, each run in a process of its own.

``python drain_ways.py WAY FACTS`` (JSON) imports what the way needs, says that it is ready, waits
for a line and only then begins: neither the interpreter's start nor an import counts. The last line
of its output says how long it took and the most memory that the process ever used. This file needs
nothing of ours but in the ways ``oml``: the ways of dlt run in another environment.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Work = Callable[[], object]


def oml(facts: dict[str, Any]) -> Work:
    """The command ``oml lake drain --once``, as it is installed, with the settings it has."""
    os.environ["OML_LAKE_URL"] = facts["url"]
    from oml import gate, settings
    from oml.cli import lake
    from oml.lake import writer

    assert gate and settings and writer  # imported now and not by the command
    return lambda: lake.drain(once=True, dsn=facts["dsn"], json=True)


def oml_bronze(facts: dict[str, Any]) -> Work:
    """The same writer with bronze.events as its only table, as it is what the peers write."""
    from oml.lake import source, writer
    from oml.lake.schema import BRONZE_EVENTS
    from oml.settings import Settings

    def drain() -> None:
        with source.Source(facts["dsn"]) as opened:
            settings = Settings(lake_url=facts["url"])
            writer.LakeWriter(opened, settings, (BRONZE_EVENTS,)).drain()

    return drain


def plain(facts: dict[str, Any]) -> Work:
    """One write_deltalake of all rows, which are in memory as Arrow before the clock starts."""
    return _write(facts, None)


def plain_batches(facts: dict[str, Any]) -> Work:
    """A write_deltalake a batch, of as many rows as the drain's batches have."""
    return _write(facts, facts["batch_rows"])


def _write(facts: dict[str, Any], rows_each: int | None) -> Work:
    import pyarrow as pa
    from deltalake import WriterProperties, write_deltalake

    with pa.OSFile(facts["arrow"]) as file:
        rows = pa.ipc.open_file(file).read_all()
    batches = [rows]
    if rows_each is not None:
        batches = [rows.slice(start, rows_each) for start in range(0, rows.num_rows, rows_each)]

    def write() -> None:
        for batch in batches:
            write_deltalake(
                facts["url"],
                batch,
                mode="append",
                configuration={"delta.dataSkippingStatsColumns": facts["statistics"]},
                writer_properties=WriterProperties(compression="ZSTD"),
            )

    return write


def dlt(facts: dict[str, Any]) -> Work:
    """dlt as its pages say for PostgreSQL: sql_table of a view, with the backend for Arrow."""
    _ = _dlt(facts)
    from dlt.sources.sql_database import sql_table

    resource = sql_table(
        credentials=f"postgresql+psycopg2://{facts['user']}@/oml?host={facts['socket']}",
        schema="public",
        table=facts["view"],
        backend="pyarrow",
    )
    return _run(facts, resource)


def dlt_adbc(facts: dict[str, Any]) -> Work:
    """dlt with a resource of one's own, that yields Arrow as ADBC reads it: its fastest way."""
    dlt = _dlt(facts)
    import adbc_driver_postgresql.dbapi as adbc
    import pyarrow as pa

    def read() -> Any:
        with (
            adbc.connect(facts["dsn_of_view"], autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"select * from public.{facts['view']} order by outbox_seq")
            for batch in cursor.fetch_record_batch():
                yield pa.Table.from_batches([batch])

    return _run(facts, dlt.resource(read, name=facts["view"]))


def _dlt(facts: dict[str, Any]) -> Any:
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    os.environ["DLT_DATA_DIR"] = facts["work"]
    import dlt
    import dlt.common.libs.deltalake  # and with it deltalake and pyarrow
    import dlt.destinations.impl.filesystem.filesystem

    return dlt


def dlt_connectorx(facts: dict[str, Any]) -> Work:
    """dlt's sql_table with its backend connectorx, as a stream of Arrow: its own fastest way."""
    _ = _dlt(facts)
    from dlt.sources.sql_database import sql_table

    socket = facts["socket"].replace("/", "%2F")
    resource = sql_table(
        credentials=f"postgresql+psycopg2://{facts['user']}@/oml?host={facts['socket']}",
        schema="public",
        table=facts["view"],
        backend="connectorx",
        backend_kwargs={
            "conn": f"postgresql://{facts['user']}@{socket}/oml",
            "return_type": "arrow_stream",
        },
    )
    return _run(facts, resource)


def _run(facts: dict[str, Any], resource: Any) -> Work:
    import dlt

    pipeline = dlt.pipeline(
        "bench",
        destination=dlt.destinations.filesystem(bucket_url=facts["url"]),
        dataset_name="bronze",
    )
    return lambda: pipeline.run(resource, table_format="delta", write_disposition="append")


def main() -> None:
    """Run one way once."""
    work = globals()[sys.argv[1]](json.loads(sys.argv[2]))
    print("ready", flush=True)
    sys.stdin.readline()
    start, cpu = time.perf_counter(), os.times()
    work()
    took, after = time.perf_counter() - start, os.times()
    status = Path("/proc/self/status").read_text()
    peak_kib = int(status.partition("VmHWM:")[2].split()[0])
    spent = after.user + after.system - cpu.user - cpu.system
    print(json.dumps({"seconds": took, "cpu_s": spent, "peak_mb": peak_kib / 1024}))


if __name__ == "__main__":
    main()
