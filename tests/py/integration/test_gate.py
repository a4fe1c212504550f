"""The write gate over real servers: restarts, and what the lake says of a database set back."""

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import psycopg
import pytest

from backups import Backups
from lakes import (
    KIND,
    PATIENCE_S,
    append,
    delta,
    drain,
    expect_exact,
    findings,
    lake_writer,
    outbox_max,
    prepare,
    rows,
    settings,
    value,
    wait_until,
)
from oml import gate
from oml.dev.cluster import SUPERUSER
from oml.errors import GateClosedError
from oml.reconcile.bronze import Difference
from systems import Connection, System


def status(system: System) -> tuple[bool, str]:
    row = system.superuser.execute("select is_open, state from oml_gate_status()").fetchone()
    assert row is not None
    return row[0], row[1]


def restart(system: System, how: str) -> None:
    system.cluster.kill() if how == "kill" else system.cluster.stop()
    system.superuser.close()
    system.cluster.start()


def refused(connection: Connection, tenant: str | None = None) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught:
        append(connection, tenant=tenant)
    assert caught.value.sqlstate == "OM160", caught.value
    return caught.value


# -- restarts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_first_append_opens_the_gate_of_a_system_without_a_lake(
    private_system: System, how: str
) -> None:
    prepare(private_system)
    private_system.forget_places()
    restart(private_system, how)
    assert status(private_system) == (False, "restarted")
    app = private_system.connect("app")
    append(app)
    assert status(private_system) == (True, "open")
    by = value(private_system.superuser, "select opened_by from oml_gate_status()")
    assert by == "app", "in its own transaction, as itself"
    append(app, 2)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_nobody_opens_the_gate_with_settings_from_before_a_change(
    private_system: System, how: str
) -> None:
    prepare(private_system)
    private_system.forget_places()
    restart(private_system, how)
    app = private_system.connect("app", autocommit=False)
    app.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    value(app, "select count(*) from pg_class")  # takes the snapshot
    change = "update oml.setting set value = %s where name = 'profile'"
    private_system.superuser.execute(change, ["production"])
    with pytest.raises(psycopg.errors.SerializationFailure):
        append(app)
    app.rollback()
    assert status(private_system) == (False, "restarted")
    private_system.superuser.execute(change, ["local"])
    append(app)
    app.commit()
    assert status(private_system) == (True, "open")


def test_a_change_of_the_profile_does_not_stop_the_deployment_for_one_open_append(
    system: System,
) -> None:
    app = prepare(system, "acme", "globex")
    holder = system.connect("app", autocommit=False)
    append(holder, tenant="globex")
    with ThreadPoolExecutor(1) as pool:
        change = pool.submit(
            value, system.connect(SUPERUSER), "select oml_configure('profile', 'local')"
        )
        wait_until(
            system, "select from pg_locks where mode = 'ShareRowExclusiveLock' and not granted"
        )
        append(app, tenant="acme")  # waits until the change has given up
        with pytest.raises(psycopg.Error) as given_up:
            change.result(PATIENCE_S)
    assert given_up.value.sqlstate == "OM183"
    holder.commit()
    value(system.superuser, "select oml_configure('profile', 'local')")


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_was_drained_must_be_compared_before_anything_is_appended(
    private_system: System, how: str
) -> None:
    append(prepare(private_system), 3)
    drain(private_system)
    restart(private_system, how)
    app = private_system.connect("app")
    assert "oml gate open" in str(refused(app).diag.message_hint)
    with pytest.raises(GateClosedError), lake_writer(private_system) as writer:
        writer.drain()
    closed = private_system.oml("gate", "status", "--json")
    assert (closed.returncode, '"verdict": "closed"' in closed.stdout) == (1, True), closed.stdout
    opened = private_system.oml("gate", "open")
    assert opened.returncode == 0, opened.stderr
    append(app)
    drain(private_system)
    expect_exact(private_system)
    assert private_system.oml("gate", "status").returncode == 0


def test_a_cold_copy_from_before_the_first_drain_is_not_opened_by_an_append(
    private_system: System, open_dir: Path
) -> None:
    app = prepare(private_system)
    private_system.superuser.close()
    private_system.cluster.stop()
    cold = open_dir / "cold"
    subprocess.run(["cp", "-a", str(private_system.cluster.data), str(cold)], check=True)
    private_system.cluster.start()
    private_system.open_gate()
    app = private_system.connect("app")
    append(app, 5)
    drain(private_system)
    private_system.cluster.stop()
    shutil.rmtree(private_system.cluster.data)
    subprocess.run(["cp", "-a", str(cold), str(private_system.cluster.data)], check=True)
    private_system.cluster.start()
    refused(private_system.connect("app"))
    with pytest.raises(GateClosedError, match="acme: seq 2 to 6 are lost"):
        private_system.open_gate()


def test_of_two_first_appends_one_opens_the_gate_and_neither_waits_for_ever(
    private_system: System,
) -> None:
    prepare(private_system, "acme", "globex")
    private_system.forget_places()
    restart(private_system, "stop")
    first = private_system.connect("app", autocommit=False)
    second = private_system.connect("app", autocommit=False)
    append(first, tenant="acme")
    append(second, tenant="globex")  # while the first has not ended
    assert status(private_system)[0] is False
    waiting = private_system.oml("gate", "open")
    assert waiting.returncode == 2, "whoever opens it is waited for, but not for ever"
    assert f"backend pid {first.info.backend_pid}" in waiting.stderr, waiting.stderr
    second.commit()
    assert status(private_system)[0] is False, "the opening is the first one's"
    first.rollback()
    assert status(private_system)[0] is False
    append(second, tenant="globex")
    second.commit()
    assert status(private_system) == (True, "open")
    verdicts = private_system.oml("verify")
    assert verdicts.returncode == 0, verdicts.stdout


def test_many_first_appends_at_once_go_through(private_system: System) -> None:
    prepare(private_system, "acme", "globex")
    private_system.forget_places()
    restart(private_system, "kill")
    barrier = Barrier(8)

    def first_append(number: int) -> None:
        with psycopg.connect(private_system.dsn(), autocommit=True) as connection:
            barrier.wait()
            append(connection, 3, ("acme", "globex")[number % 2])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(first_append, range(8)))
    assert status(private_system) == (True, "open")
    events = value(
        private_system.superuser, "select count(*) from oml.journal where type = %s", KIND
    )
    assert events == 24


# -- a base backup, restored to a point before the lake's end ------------------------------------


@pytest.fixture
def backups(private_system: System, open_dir: Path) -> Iterator[Backups]:
    """A system with an archive of its WAL and a base backup of its state with two tenants."""
    with Backups(private_system, open_dir / "backups") as backups:
        yield backups


def set_back(system: System, backups: Backups) -> System:
    """Append and drain, note a point, append and drain more, lose the server, restore the point.

    Lost are 40 events of acme, two of globex, and the tenant initech with its two.
    """
    app = prepare(system, "acme", "globex")
    append(app, 3, "acme")
    append(app, 2, "globex")
    drain(system)
    append(app, 1, "acme")
    backups.mark()
    append(app, 40, "acme")  # more than the numbers that a sequence logs ahead
    append(app, 2, "globex")
    system.make("initech")
    system.bind("app", "initech")
    append(app, 1, "initech")
    drain(system)
    backups.archive()
    system.superuser.close()
    system.cluster.kill()
    return backups.restore()


def test_a_database_set_back_before_the_lake_stays_closed_and_names_what_is_lost(
    private_system: System, backups: Backups
) -> None:
    copy = set_back(private_system, backups)
    lake = rows(private_system)
    report = gate.check(settings(private_system), copy.dsn(SUPERUSER))
    assert (report.verdict, report.state) == (gate.Verdict.CONTRADICTED, "other-timeline")
    found = {
        loss.tenant: (loss.last_seq, loss.lost_from, loss.lost_to, loss.lake_events)
        for loss in report.losses
    }
    head = value(
        copy.superuser,
        "select max(seq) from oml.journal join oml.tenant using (tenant_id)"
        " where name = 'provider'",
    )
    assert found.pop("provider") == (head, head + 1, head + 2, 2)
    assert found == {"acme": (5, 6, 45, 40), "globex": (3, 4, 5, 2), None: (0, 1, 2, 2)}
    app = copy.connect()
    for tenant in ("acme", "globex"):
        refused(app, tenant)
    opened = copy.oml("gate", "open")
    assert opened.returncode == 1
    assert "globex: seq 4 to 5 are lost, the journal ends at 3" in opened.stderr
    assert "acme: seq 6 to 45 are lost" in opened.stderr
    assert "accept-loss" in opened.stderr
    drained = copy.oml("lake", "drain", "--once")
    assert drained.returncode == 1 and "acme: seq 6 to 45 are lost" in drained.stderr
    assert copy.oml("adopt", "--reason", "x", "--yes").returncode == 1, "it is no logical copy"
    assert copy.oml("verify").returncode == 0, "reads go on"
    assert rows(private_system) == lake, "nothing was written"


def test_what_was_published_and_never_drained_is_missed_too(
    private_system: System, backups: Backups
) -> None:
    """The log alone: its checkpoints name what the lake does not hold."""
    app = prepare(private_system, "acme", "globex")
    append(app, 3, "acme")
    assert private_system.oml("tlog", "publish", "--once").returncode == 0
    backups.mark()
    append(app, 2, "acme")
    assert private_system.oml("tlog", "publish", "--once").returncode == 0
    append(app, 1, "globex")  # neither published nor drained: nobody can name it
    backups.archive()
    private_system.superuser.close()
    private_system.cluster.kill()
    copy = backups.restore()
    refused(copy.connect(), "acme")
    opened = copy.oml("gate", "open")
    assert opened.returncode == 1
    assert "acme: seq 5 to 6 are lost, the journal ends at 4" in opened.stderr
    assert "globex" not in opened.stderr
    published = copy.oml("tlog", "publish", "--once")
    assert published.returncode == 1 and "acme: seq 5 to 6 are lost" in published.stderr
    accepted = copy.oml("gate", "accept-loss", "--reason", "the disk died", "--yes", "--json")
    assert accepted.returncode == 0, accepted.stderr
    (loss,) = json.loads(accepted.stdout)["losses"]
    assert (loss["tenant"], loss["lost_from"], loss["lost_to"]) == ("acme", 5, 6)
    assert (loss["checkpoint_size"], loss["generation"], len(loss["hashes"])) == (6, 1, 2)
    append(copy.connect(), 4, "acme")
    published = copy.oml("tlog", "publish", "--once")
    assert published.returncode == 0, published.stdout + published.stderr
    generations = "select name, generation, size from oml.tlog join oml.tenant using (tenant_id)"
    found = {row[0]: row[1:] for row in copy.superuser.execute(generations.encode())}
    assert found["acme"] == (2, 8) and found["globex"][0] == 1
    drain(copy)
    expect_exact(copy)
    for command in (("verify",), ("reconcile",), ("gate", "status")):
        done = copy.oml(*command)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_tenant_that_only_its_log_remembers_is_lost_and_can_be_accepted_so(
    private_system: System, backups: Backups
) -> None:
    append(prepare(private_system, "acme"), 1, "acme")
    assert private_system.oml("tlog", "publish", "--once").returncode == 0
    backups.mark()
    private_system.make("initech")
    private_system.bind("app", "initech")
    append(private_system.connect("app"), 3, "initech")
    initech = value(private_system.superuser, "select tenant_id from oml.tenant where chain_no = 2")
    head = value(
        private_system.superuser, f"select max(seq) from oml.journal where tenant_id = '{initech}'"
    )
    assert private_system.oml("tlog", "publish", "--once").returncode == 0
    backups.archive()
    private_system.superuser.close()
    private_system.cluster.kill()
    copy = backups.restore()
    opened = copy.oml("gate", "open")
    assert opened.returncode == 1
    assert f"{initech}: seq 1 to {head} are lost, the journal ends at 0" in opened.stderr
    accepted = copy.oml("gate", "accept-loss", "--reason", "the disk died", "--yes", "--json")
    assert accepted.returncode == 0, accepted.stderr
    losses = {loss["tenant_id"]: loss for loss in json.loads(accepted.stdout)["losses"]}
    loss = losses[str(initech)]
    assert (loss["tenant"], loss["lost_from"], loss["lost_to"]) == (None, 1, head)
    assert (loss["last_seq"], loss["checkpoint_size"], len(loss["hashes"])) == (0, head, head)
    assert (
        value(copy.superuser, f"select count(*) from oml.tlog where tenant_id = '{initech}'") == 0
    )
    assert copy.oml("tlog", "publish", "--once").returncode == 0
    restart(copy, "kill")
    opened = copy.oml("gate", "open")
    assert opened.returncode == 0, f"its log stays and was accepted: {opened.stderr}"
    assert copy.oml("verify").returncode == 0


def test_an_accepted_loss_is_journalled_and_everything_goes_on(
    private_system: System, backups: Backups
) -> None:
    copy = set_back(private_system, backups)
    asked = copy.oml("gate", "accept-loss", "--reason", "the disk died")
    assert asked.returncode == 2 and "--yes" in asked.stderr
    assert "globex" in asked.stdout, "it says what is lost before it asks"
    assert copy.oml("gate", "accept-loss", "--reason", "", "--yes").returncode == 2
    accepted = copy.oml("gate", "accept-loss", "--reason", "the disk died", "--yes")
    assert accepted.returncode == 0, accepted.stderr
    payload = value(
        copy.superuser, "select payload from oml.journal where type = 'journal.loss-accepted'"
    )
    assert payload["reason"] == "the disk died"
    ranges = {
        (loss.get("tenant"), loss["lost_from"], loss["lost_to"]) for loss in payload["losses"]
    }
    assert {("acme", 6, 45), ("globex", 4, 5), (None, 1, 2)} < ranges
    lake_end = payload["lake_version"]
    new = value(
        copy.superuser,
        "select o.seq from oml.outbox o"
        " join oml.journal j on j.tenant_id = o.tenant_id and j.seq = o.chain_seq"
        " where j.type = 'journal.loss-accepted'",
    )
    assert new == lake_end + 1
    again = copy.oml("gate", "accept-loss", "--reason", "again", "--yes")
    assert again.returncode == 1 and "no loss to accept" in again.stderr

    app = copy.connect()
    append(app, 2, "acme")
    append(app, 2, "globex")
    done = copy.oml("lake", "drain", "--once")
    assert done.returncode == 0, done.stderr
    reconciled = copy.oml("reconcile")
    assert reconciled.returncode == 0, reconciled.stdout + reconciled.stderr
    assert "46 events of accepted losses" in reconciled.stdout
    assert copy.oml("verify").returncode == 0
    assert copy.oml("gate", "status").returncode == 0
    # and once more through a restart, with the lake as evidence
    restart(copy, "kill")
    app = copy.connect()
    refused(app, "acme")
    opened = copy.oml("gate", "open")
    assert opened.returncode == 0, opened.stderr
    append(app, 1, "acme")
    assert copy.oml("lake", "drain", "--once").returncode == 0
    assert copy.oml("reconcile").returncode == 0


def test_omld_waits_with_the_signer_at_its_side_until_the_loss_is_accepted(
    private_system: System, backups: Backups
) -> None:
    copy = set_back(private_system, backups)
    before = delta(copy).version()
    serving = copy.start_oml("serve", "--json", env={"OML_POLL_INTERVAL_S": "0.05"})
    assert serving.stderr is not None
    for line in serving.stderr:
        if "acme: seq 6 to 45 are lost" in line:
            break
    assert serving.poll() is None, "it stays up"
    assert delta(copy).version() == before, "and writes nothing"
    accepted = copy.oml("gate", "accept-loss", "--reason", "the disk died", "--yes", "--json")
    assert accepted.returncode == 0, accepted.stderr
    append(copy.connect(), 1, "globex")
    wait_until(
        copy,
        "select from oml.frontier where name = 'lake' and seq = (select max(seq) from oml.outbox)",
    )
    serving.send_signal(signal.SIGTERM)
    serving.communicate(timeout=PATIENCE_S)
    assert serving.returncode == 0
    assert copy.oml("reconcile").returncode == 0


def test_what_else_is_wrong_with_the_lake_is_still_found_after_an_accepted_loss(
    private_system: System, backups: Backups
) -> None:
    copy = set_back(private_system, backups)
    assert copy.oml("gate", "accept-loss", "--reason", "x", "--yes").returncode == 0
    drain(copy)
    assert findings(copy) == []
    table = delta(copy)
    outbox_seq, acme = next(row[:2] for row in rows(copy) if row[2] == 45)  # lost, and acme's last
    table.delete(f"outbox_seq = {outbox_seq}")
    found = findings(copy)
    assert [(f.difference, f.tenant_id) for f in found] == [(Difference.MISSING_IN_LAKE, acme)]
    assert "accepted as lost" in found[0].detail


def test_a_full_recovery_of_the_archive_loses_nothing_and_needs_no_person(
    private_system: System, backups: Backups
) -> None:
    append(prepare(private_system), 3)
    drain(private_system)
    append(private_system.connect(), 2)
    backups.archive()
    private_system.superuser.close()
    private_system.cluster.kill()
    copy = backups.restore(to_mark=False)
    assert status(copy) == (False, "other-timeline")
    refused(copy.connect())
    assert copy.oml("gate", "open").returncode == 0
    append(copy.connect(), 2)
    drain(copy)
    expect_exact(copy)


def test_evidence_that_cannot_be_reached_keeps_the_gate_closed_unless_that_was_allowed(
    private_system: System,
) -> None:
    append(prepare(private_system), 3)
    drain(private_system)
    restart(private_system, "stop")
    away = private_system.lake.with_name("away")
    private_system.lake.rename(away)
    private_system.lake.mkdir()
    closed = private_system.oml("gate", "open")
    assert closed.returncode == 1
    assert "cannot be reached" in closed.stderr and "gate_evidence" in closed.stderr
    refused(private_system.connect())
    private_system.superuser.execute("select oml_configure('gate_evidence', 'reachable')")
    opened = private_system.oml("gate", "open")
    assert opened.returncode == 0, opened.stderr
    evidence = value(private_system.superuser, "select evidence from oml_gate_status()")
    assert evidence["unreachable"], "what was not looked at is recorded"
    private_system.lake.rmdir()
    away.rename(private_system.lake)
    append(private_system.connect())
    drain(private_system)
    expect_exact(private_system)


def test_numbers_that_a_crash_of_a_copied_database_would_give_out_again_are_not(
    private_system: System,
) -> None:
    """CREATE DATABASE copies a sequence with a reserve that its own WAL does not know."""
    append(prepare(private_system), 2)
    private_system.close()
    copy = System(private_system.cluster, "copied", private_system.lake)
    with psycopg.connect(private_system.cluster.dsn(), autocommit=True) as connection:
        connection.execute(
            f'create database copied template "{private_system.database}" strategy wal_log'
        )
    copy.superuser.execute("select oml_adopt('copied')")
    copy.forget_places()
    append(copy.connect(), 5)
    used = outbox_max(copy)
    restart(copy, "kill")
    assert value(copy.superuser, "select last_value from oml.outbox_seq") < used
    append(copy.connect(), 5)
    assert outbox_max(copy) > used
    assert copy.oml("verify").returncode == 0
    drain(copy)
    expect_exact(copy)
    copy.close()
