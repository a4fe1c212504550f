"""From commit to readable in Delta, while 1,000 events/s of 100 tenants are appended for 60 s.

omld's lake writer runs with its settings as they are, on the machine of the server and its
clients. When an event was committed is what the server has kept (track_commit_timestamp); when it
was readable is the time of the log entry of bronze.events by which its outbox seq was applied.

Beside them in the same run: ``lag_vs_poll``, the median lag against the time between two looks of
the writer, which is what a writer of no cost at all would have as its mean, twice over.

OML_BENCH_SECONDS is how long; with fewer than 60 it is a trial, whose result is not kept.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from bisect import bisect_left
from pathlib import Path

import common
from oml.dev import programs
from oml.dev.cluster import Cluster
from oml.driver.connection import connect
from oml.lake.schema import BRONZE_EVENTS
from oml.lake.table import APP_ID
from oml.settings import Settings

FULL = 60
SECONDS = int(os.environ.get("OML_BENCH_SECONDS", FULL))
RATE = 1000
CLIENTS = 4
TENANTS = 100
WARM_UP_S = 5
PATIENCE_S = 120
MOST = {"lag_p50_s": 0.5, "lag_p99_s": 2.0}
SCRIPT = """\
\\set tenant random(1, 100)
select seq from oml_append('note.added', :payload, tenant => 'bench' || :tenant);
"""
PAYLOAD = json.dumps({"note": "paid in part", "lines": 7, "total": 1234.5, "currency": "EUR"})


def prepare(cluster: Cluster) -> None:
    """Make the tenants and the event type."""
    with connect(cluster.dsn(dbname="oml"), autocommit=True) as superuser:
        superuser.execute("select oml_register_event_type('note.added')")
        for number in range(1, TENANTS + 1):
            superuser.execute("select oml_create_tenant(%s)", (f"bench{number}",))
            superuser.execute("select oml_grant('dev', %s, '{append}')", (f"bench{number}",))


def load(dsn: str, seconds: int) -> None:
    """Append at the rate, by a schedule that does not wait for slow ones."""
    subprocess.run(
        [
            *(programs.find().path("pgbench"), "--no-vacuum", "--protocol=prepared"),
            *(f"--client={CLIENTS}", "--jobs=2", f"--rate={RATE}", f"--time={seconds}"),
            *("--file=/dev/stdin", f"--define=payload={PAYLOAD}", dsn),
        ],
        input=SCRIPT.encode(), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def applied(log: Path) -> tuple[list[int], list[float]]:
    """Return (last outbox seq, time it was readable) of each batch, by the Delta log."""
    ends: list[int] = []
    times: list[float] = []
    for path in sorted(log.glob("*.json")):
        for line in path.read_text().splitlines():
            action = json.loads(line).get("txn")
            if action and action["appId"] == APP_ID and action["version"] not in ends[-1:]:
                ends.append(action["version"])
                times.append(path.stat().st_mtime)
    return ends, times


def wait(cluster: Cluster) -> None:
    """Wait until the frontier has reached the outbox's end."""
    query = (
        "select (select max(seq) from oml.outbox) <= (select seq from oml.frontier"
        " where name = 'lake')"
    )
    deadline = time.monotonic() + PATIENCE_S
    with connect(cluster.dsn(dbname="oml"), autocommit=True) as superuser:
        while True:
            row = superuser.execute(query.encode()).fetchone()
            if row is not None and row[0]:
                return
            if time.monotonic() > deadline:
                raise RuntimeError("the lake does not catch up")
            time.sleep(0.1)


def lags(cluster: Cluster, log: Path, after: float) -> list[float]:
    """Return how many seconds each event took that was committed after a time."""
    ends, times = applied(log)
    with connect(cluster.dsn(dbname="oml"), autocommit=True) as superuser:
        rows = superuser.execute(
            "select o.seq, extract(epoch from pg_xact_commit_timestamp(o.xmin))::float8"
            " from oml.outbox o where o.target = 'bronze.events' order by 1"
        ).fetchall()
    return [times[bisect_left(ends, seq)] - at for seq, at in rows if at is not None and at > after]


def main() -> int:
    """Run it; return the exit status."""
    with common.server({"track_commit_timestamp": True}) as (system, cluster):
        prepare(cluster)
        lake = Path(system.lake_url.removeprefix("file://"))
        with subprocess.Popen(
            [sys.executable, "-m", "oml", "serve", "--role", "lake-writer"],
            env={**os.environ, "OML_DSN": system.superuser_dsn},
        ) as serving:
            try:
                load(system.dsn, WARM_UP_S)
                wait(cluster)
                began = time.time()
                load(system.dsn, SECONDS)
                seconds = time.time() - began
                wait(cluster)
            finally:
                serving.terminate()
        found = sorted(lags(cluster, lake / BRONZE_EVENTS.location / "_delta_log", began))
        subprocess.run(
            [sys.executable, "-m", "oml", "reconcile", "--dsn", system.superuser_dsn],
            env=os.environ | {"OML_LAKE_URL": system.lake_url}, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
    if len(found) < 0.95 * RATE * SECONDS:
        raise RuntimeError(f"only {len(found)} events came in {seconds:.0f} s")
    at = {"lag_p50_s": 0.5, "lag_p99_s": 0.99}
    figures = [
        common.Figure(
            key, round(found[int(share * (len(found) - 1))], 3), MOST[key], {}, at_most=True
        )
        for key, share in at.items()
    ]
    poll = Settings().poll_interval_s
    ratio = round(figures[0].value / poll, 2)
    figures.append(common.Figure("lag_vs_poll", ratio, None, {"poll_interval_s": poll}))
    more = {
        "events": len(found), "events_per_s": round(len(found) / seconds, 1), "tenants": TENANTS,
        "mean_s": round(statistics.fmean(found), 3), "most_s": round(found[-1], 3),
    }  # fmt: skip
    return common.finish("lag", figures, more, keep=SECONDS >= FULL)


if __name__ == "__main__":
    sys.exit(main())
