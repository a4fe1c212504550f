"""What is held is nowhere but in its place: canaries are looked for in everything else."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import S3Store

from lakes import (
    PATIENCE_S,
    append,
    delta,
    drain,
    expect_exact,
    findings,
    frontier,
    outbox_max,
    prepare,
    rows,
    value,
)
from movers import beside, due, move
from oml.core import body
from oml.dev.cluster import SUPERUSER
from oml.lake.schema import TABLES
from oml.store import open_store
from seaweed import Bucket
from submissions import Office, call, data_key, fetched, outcome, sealed
from systems import System

CHUNK = 48  # bytes of a ciphertext that no other bytes share by chance


@pytest.fixture
def office(private_system: System) -> Office:
    """An office on a server of its own, which logs temporary files and statements that fail."""
    prepare(private_system, "globex")
    superuser = private_system.superuser
    for setting in ("log_temp_files = 0", "log_min_error_statement = error", "log_duration = on"):
        superuser.execute(f"alter system set {setting}".encode())
    superuser.execute("select pg_reload_conf()")
    return Office(private_system)


def holding(needle: bytes, root: Path) -> set[Path]:
    """Return the files below a place in which these bytes are, as they are or in hex."""
    return {
        path for path in root.rglob("*") if path.is_file() and contains(path.read_bytes(), needle)
    }


def contains(data: bytes, needle: bytes) -> bool:
    """Tell whether bytes are in data, as they are or in hex."""
    return needle in data or needle.hex().encode() in data


def told(system: System) -> Iterator[bytes]:
    """Yield outbox and journal as text, and all values of the lake's tables."""
    for table in ("outbox", "journal", "entity", "artifact_version", "attachment", "event_type"):
        text = value(
            system.superuser, f"select coalesce(string_agg(t::text, ' '), '') from oml.{table} t"
        )
        yield text.encode()
    for lake_table in TABLES:
        if (system.lake / lake_table.location).exists():
            scan = delta(system, lake_table).scan()
            for row in pa.RecordBatchReader.from_stream(scan).read_all().to_pylist():
                for cell in row.values():
                    yield cell if isinstance(cell, bytes) else str(cell).encode()


def published(system: System) -> None:
    """Drain the lake and publish the logs."""
    drain(system)
    assert move(system, beside(system)).dead_letters == []
    done = system.oml("tlog", "publish", "--once", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    system.superuser.execute("checkpoint")


def body_files(system: System) -> set[str]:
    """Return the names of the files of oml.body and of its out-of-line values."""
    names = system.superuser.execute(
        "select pg_relation_filenode(c.oid)::text from pg_class c"
        " where c.oid = 'oml.body'::regclass"
        " or c.oid = (select reltoastrelid from pg_class where oid = 'oml.body'::regclass)"
    )
    return {name for (name,) in names}


def ciphertexts_of(system: System, artifact: UUID) -> list[bytes]:
    """Return what no other bytes share by chance: the ends of each stored part."""
    return [
        data[at : at + CHUNK]
        for (data,) in system.superuser.execute(
            "select ciphertext from oml.body where artifact_id = %s", (artifact,)
        )
        for at in (0, 1000 % len(data), len(data) - CHUNK)
    ]


def test_a_held_submission_is_nowhere_but_in_its_place(office: Office) -> None:
    system = office.system
    canary = f"canary {uuid4()}".encode()
    big = canary + b" sings. " * 1000000
    artifact = office.submit(big, canary + b" attached", canary * 20000)
    assert (
        outcome(office.author, "select oml_submit('nowhere', %b, 'text/plain', 'observed')", canary)
        == "OM190"
    )
    assert (
        outcome(office.author, "select oml_submit('research', %b, 'image/png', 'observed')", canary)
        == "OM195"
    )
    literal = f"select oml_submit('research', '{canary.decode()}', 'image/png', 'observed')"
    assert outcome(office.author, literal) == "OM195"
    assert outcome(office.author, literal.replace("image/png", "")) == "OM194"
    office.reviewer.execute("select count(*) from oml_review_serve(%s)", (artifact,))
    assert fetched(office.author, artifact) == big
    for part in range(2):  # as much as there may be, in either way
        most = [bytes([120 + part]) * body.MAX_ATTACHMENT_BYTES] * body.MAX_ATTACHMENTS
        largest = b"y" * body.MAX_BODY_BYTES
        if part == 0:
            made = office.submit(largest, *most)
        else:
            key = data_key(office.author)
            made = call(office.author, "oml_submit_sealed", sealed(key, largest, *most))[1]
        served = "select sum(octet_length(content)) from oml_review_serve(%s)"
        assert value(office.reviewer, served, made) == len(largest) + sum(map(len, most))
        assert fetched(office.author, made) == largest
    ciphertexts = ciphertexts_of(system, artifact)
    published(system)

    # What searches finds, where it is to be found.
    known = f"known {uuid4()}".encode()
    system.connect("app").execute(
        "select oml_append('note.added', jsonb_build_object('n', %s::text))", (known.decode(),)
    )
    assert outcome(system.superuser, f"select '{known.decode()}'::int") is not None
    system.superuser.execute(
        "select count(*) from (select g from generate_series(1, 400000) g order by -g offset 0) s"
    )
    published(system)
    cluster = system.cluster
    assert any(contains(text, known) for text in told(system))
    assert any(contains(cell, known) for cell in list(told(system))[6:]), "the lake is read"
    assert contains(cluster.log_file.read_bytes(), known)
    assert "temporary file" in cluster.log_file.read_text()
    assert holding(known, cluster.data / "pg_wal")
    assert holding(known, cluster.data / "base")
    bodies = system.lake.parent / f"{system.lake.name}-bodies"
    other = office.submit(b"released" * 1000, b"with a file")
    office.promote(other)
    published(system)
    assert all(holding(chunk, bodies) for chunk in ciphertexts_of(system, other))

    # The plaintext is nowhere at all.
    places = (cluster.directory, system.lake, bodies, system.tlog)
    assert [holding(canary, place) for place in places] == [set()] * 4
    assert not any(contains(text, canary) for text in told(system))
    # The ciphertext is in its table and in the write-ahead log.
    own = body_files(system)
    everywhere = set()
    for chunk in ciphertexts:
        found = holding(chunk, cluster.directory)
        everywhere |= found
        assert all(
            path.name.partition(".")[0] in own or path.parent.name == "pg_wal" for path in found
        ), found
        assert not any(holding(chunk, place) for place in places[1:])
        assert not any(contains(text, chunk) for text in told(system))
    assert {path.name.partition(".")[0] for path in everywhere} & own, "it is found where it is"
    assert (
        value(
            system.superuser,
            "select count(*) from oml.outbox o join oml.journal j"
            " on j.tenant_id = o.tenant_id and j.seq = o.chain_seq"
            " where o.target <> 'bronze.events' and j.artifact_id <> %s",
            other,
        )
        == 0
    )
    # No temporary file was written for what was encrypted, served or fetched.
    temporary = [
        line for line in cluster.log_file.read_text().splitlines() if "temporary file" in line
    ]
    assert temporary and all(f" {SUPERUSER}@" in line for line in temporary)


def test_promotion_queues_content_and_the_lake_goes_on(office: Office) -> None:
    system = office.system
    append(system.connect("app"), 3, "globex")
    artifact = office.submit(b"held", b"attached")
    drain(system)
    office.promote(artifact)
    append(system.connect("app"), 3, "globex")
    office.chief.execute("select oml_demote(%s, 'wrong')", (artifact,))
    targets = system.superuser.execute(
        "select array_agg(o.target order by o.seq), count(distinct o.chain_seq) from oml.outbox o"
        " where o.target <> 'bronze.events'"
    ).fetchone()
    assert targets == (["silver.claims", "silver.attachments", "bodies", "silver.claims"], 2)
    drain(system)
    drain(system)
    have = rows(system)
    assert len(have) == value(system.superuser, "select count(*) from oml.journal")
    assert len({row[1:3] for row in have}) == len(have)
    assert findings(system) == []
    expect_exact(system)
    append(system.connect("app"), 1, "globex")
    office.promote(office.submit(b"the last row of the outbox is of no table yet"))
    drain(system)
    expect_exact(system)
    done = system.oml("reconcile", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert outbox_max(system) == value(
        system.superuser, "select seq from oml.frontier where name = 'lake'"
    )


# --- on an S3 server --------------------------------------------------------------------------


def all_objects(bucket: Bucket) -> Iterator[tuple[str, bytes]]:
    """Yield each object of the whole bucket, as it is and, if it is Parquet, value by value."""
    client = {"allow_http": True}
    config = {k: v for k, v in bucket.options.items() if k != "AWS_ALLOW_HTTP"}
    name, _, _ = bucket.url.removeprefix("s3://").partition("/")
    store = S3Store.from_url(f"s3://{name}", config=config, client_options=client)  # type: ignore[arg-type]
    for path in [found["path"] for page in obstore.list(store) for found in page]:
        data = bytes(obstore.get(store, path).bytes())
        yield path, data
        if data[:4] == b"PAR1":
            for row in pq.read_table(pa.BufferReader(data)).to_pylist():
                for cell in row.values():
                    yield path, cell if isinstance(cell, bytes) else str(cell).encode()


def objects_with(bucket: Bucket, needle: bytes) -> set[str]:
    """Return the paths of the bucket's objects in which these bytes are."""
    return {path for path, data in all_objects(bucket) if contains(data, needle)}


def serving(system: System, bucket: Bucket) -> subprocess.Popen[str]:
    """Start omld with lake writer and publisher, on the bucket."""
    options = json.dumps(bucket.options)
    places = {
        "OML_LAKE_URL": f"{bucket.url}/lake", "OML_LAKE_STORAGE_OPTIONS": options,
        "OML_BODIES_URL": f"{bucket.url}/bodies", "OML_BODIES_STORAGE_OPTIONS": options,
        "OML_TLOG_URL": f"{bucket.url}/tlog", "OML_TLOG_STORAGE_OPTIONS": options,
        "OML_POLL_INTERVAL_S": "0.05",
    }  # fmt: skip
    roles = ("--role", "lake-writer", "--role", "tlog")
    return system.start_oml("serve", *roles, "--json", env=places)


def ended(omld: subprocess.Popen[str]) -> bytes:
    """End omld and return all that it wrote."""
    omld.send_signal(signal.SIGTERM)
    written = "".join(omld.communicate(timeout=PATIENCE_S))
    assert omld.returncode == 0, written
    return written.encode()


def wait_until_published(system: System, omld: subprocess.Popen[str]) -> None:
    """Wait until lake and logs have each event, and the bodies' store what is released."""
    behind = (
        "select exists (select from oml.journal j left join oml.tlog t using (tenant_id)"
        " where j.seq > coalesce(t.size, 0))"
        " or (select min(seq) < max(seq) from oml.frontier where name in ('lake', 'bodies'))"
    )
    deadline = time.monotonic() + PATIENCE_S
    while frontier(system) < outbox_max(system) or value(system.superuser, behind):
        assert omld.poll() is None, omld.communicate()
        assert time.monotonic() < deadline, "it is not published"
        time.sleep(0.05)


def test_on_an_s3_server_no_object_and_no_line_of_omld_has_what_is_held(
    system: System, bucket: Bucket
) -> None:
    office = Office(system)
    system.superuser.execute("select oml_register_event_type('note.added')")
    system.bind("app", "acme")
    omld = serving(system, bucket)
    canary, known = f"canary {uuid4()}".encode(), f"known {uuid4()}".encode()
    parts = (canary + b" sings. " * 1000, canary + b" attached", canary * 100)
    by_server = office.submit(*parts)
    key = data_key(office.author)
    by_client = call(office.author, "oml_submit_sealed", sealed(key, *parts))[1]
    held = (by_server, by_client)
    for artifact in held:
        office.reviewer.execute("select count(*) from oml_review_serve(%s)", (artifact,))
    note = "select oml_append('note.added', jsonb_build_object('n', %s::text))"
    system.connect("app").execute(note, (known.decode(),))
    open_to_all = office.submit(b"released" * 1000, b"with a file")
    office.promote(open_to_all)
    wait_until_published(system, omld)
    written = ended(omld)
    ciphertexts = [chunk for artifact in held for chunk in ciphertexts_of(system, artifact)]
    assert len(set(ciphertexts)) == 2 * len(parts) * 3

    objects = list(all_objects(bucket))
    for needle in (canary, *ciphertexts):
        assert {path for path, data in objects if contains(data, needle)} == set()
        assert not contains(written, needle)

    # What is there is found: a held submission's digest in the lake, and what is planted anywhere.
    place = bucket.url.removeprefix("s3://").partition("/")[2]
    (digest,) = system.superuser.execute(
        "select plaintext_digest from oml.artifact_version where artifact_id = %s", (by_client,)
    ).fetchone() or (b"",)
    for needle in (known, digest):
        paths = objects_with(bucket, needle)
        assert paths and all(path.startswith(f"{place}/lake/") for path in paths)
    assert any(path.startswith(f"{place}/tlog/") for path, _ in objects)
    moved = due(system, open_to_all)
    assert {p: d for p, d in objects if p.startswith(f"{place}/bodies/")} == {
        f"{place}/bodies/{path}": data for path, (data, _) in moved.items()
    }
    for planted in (canary, ciphertexts[-1]):
        for area in ("lake/bronze", "bodies", "tlog"):
            path = f"planted/{uuid4()}"
            open_store(f"{bucket.url}/{area}", bucket.options).create(path, b"x" + planted)
            assert f"{place}/{area}/{path}" in objects_with(bucket, planted)
    assert contains(written, b"drained") and contains(written, b"published")
