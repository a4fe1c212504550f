"""The driver without a server: what is shared, what is decided, what is shown."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import tenacity

import oml
from oml.core import body, keys
from oml.driver.artifacts import Attachment, Served
from oml.driver.calls import Calls
from oml.driver.client import Client
from oml.driver.client_async import AsyncClient, connect_async
from oml.driver.events import Event
from oml.driver.retrying import Retry, judged, mends, refusal
from oml.driver.sealing import Content, DataKey, Sealing, Writer
from oml.errors import DatabaseError, NotAcknowledged, UsageError

SECRET = b"the canary sings"


def public(kind: type) -> dict[str, Any]:
    return {n: m for n, m in vars(kind).items() if inspect.isfunction(m) and n[0] != "_"}


def test_both_clients_have_the_same_methods() -> None:
    one, other = public(Client), public(AsyncClient)
    assert list(one) == list(other) and "submit" in one
    for name, method in one.items():
        twin = inspect.signature(other[name])
        assert inspect.signature(method).parameters == twin.parameters, name
        assert method.__doc__ == other[name].__doc__, name
    assert inspect.signature(oml.connect).parameters == inspect.signature(connect_async).parameters


def test_the_package_brings_the_driver_only_when_it_is_asked_for() -> None:
    loaded = "import sys, oml; assert 'psycopg' not in sys.modules; oml.connect; oml.AsyncClient"
    begun = (
        "import sys, oml.cli; assert 'oml.driver.client' not in sys.modules"
        " and 'oml.driver.client_async' not in sys.modules and 'asyncio' not in sys.modules"
    )
    for program in (loaded, begun):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    for name in oml._DRIVER:
        assert getattr(oml, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = oml.disconnect


@pytest.mark.parametrize(
    ("error", "known", "repeatable"),
    [
        (DatabaseError("40001", "again"), True, True),
        (DatabaseError("40P01", "a deadlock"), True, True),
        (DatabaseError("57P01", "terminating connection"), True, True),
        (DatabaseError("08006", "gone"), True, True),
        (DatabaseError(None, "server closed the connection unexpectedly"), True, True),
        (DatabaseError("OM090", "the signer is not there"), True, True),
        (DatabaseError("OM092", "the signer does not answer"), True, True),
        (NotAcknowledged("01000", "cancelled wait"), False, True),
        (NotAcknowledged("57P01", "lost during COMMIT"), False, True),
        (NotAcknowledged(None, "lost during COMMIT"), False, True),
        (DatabaseError("OM014", "another request"), False, False),
        (DatabaseError("OM091", "not for this user"), False, False),
        (DatabaseError("57014", "canceling statement"), False, False),
        (DatabaseError("42501", "permission denied"), False, False),
        (DatabaseError("25006", "read-only"), False, False),
        (DatabaseError(None, 'FATAL:  role "x" does not exist'), False, False),
        (UsageError("wrong"), False, False),
        (KeyboardInterrupt(), False, False),
        (ValueError(), False, False),
    ],
)
def test_what_is_tried_again(error: BaseException, known: bool, repeatable: bool) -> None:
    assert (mends(error, False), mends(error, True)) == (known, repeatable)


def test_retries_end() -> None:
    calls = Calls(None, None, keyed=True)
    task = calls.append("note.added", {}, {})
    tried: list[float] = []

    def fail() -> None:
        tried.append(0)
        raise DatabaseError("40001", "again")

    retry = Retry(attempts=4, first_wait_s=0.001, longest_wait_s=0.002)
    with pytest.raises(DatabaseError):
        tenacity.Retrying(**retry.options(task, []))(fail)
    assert len(tried) == 4
    # The next attempt would begin after the time is up.
    impatient = Retry(attempts=4, total_s=1e-9)
    with pytest.raises(DatabaseError):
        tenacity.Retrying(**impatient.options(task, []))(fail)
    assert len(tried) == 5


def test_what_may_have_happened_is_not_forgotten_when_a_later_attempt_is_refused() -> None:
    calls = Calls(None, None, keyed=True)
    writing, reading = calls.append("note.added", {}, {}), calls.fetch(uuid4(), None, None)
    lost = NotAcknowledged(None, "lost during COMMIT")
    refused = DatabaseError("OM001", "bound to no tenant")
    open_ = judged(refused, [lost], writing)
    assert isinstance(open_, NotAcknowledged) and open_.sqlstate == "OM001"
    assert "lost during COMMIT" in open_.message and "bound to no tenant" in open_.message
    assert judged(refused, [], writing) is refused
    assert judged(refused, [lost], reading) is refused, "nothing is left behind by a read"
    assert judged(lost, [lost], writing) is lost


def test_a_key_is_made_once_for_each_call_and_each_event() -> None:
    calls = Calls("acme", None, keyed=True)
    keys_made = {key_of(calls.append("note.added", {}, {})) for _ in range(2)}
    assert len(keys_made) == 2 and None not in keys_made
    assert key_of(calls.append("note.added", {}, {"idempotency_key": "mine"})) == "mine"
    joined = Calls("acme", None, keyed=False)
    assert key_of(joined.append("note.added", {}, {})) is None
    batch = calls.append_batch([Event("a", {}), Event("b", {}, idempotency_key="mine")])
    (text,) = next(batch.steps()).parameters
    assert text.count("idempotency_key") == 2 and '"mine"' in text and text.count("acme") == 2


def argument(call: Any, name: str) -> Any:
    """Return what a call passes under a name; None if nothing."""
    named = re.findall(r'"(\w+)" => ', call.query.as_string(None))
    return call.parameters[named.index(name)] if name in named else None


def key_of(task: Any) -> Any:
    return argument(next(task.steps()), "idempotency_key")


def test_a_statement_holds_no_content() -> None:
    calls = Calls("acme", None, keyed=True)
    files = [Attachment("a.txt", "text/plain", SECRET)]
    task = calls.submit(
        "here", Content(SECRET), "text/plain", "observed", files, (), None, "server", {}
    )
    call = next(task.steps())
    assert SECRET in call.parameters and [SECRET] in call.parameters
    shown = call.query.as_string(None) + repr(call) + str(call) + repr(files)
    assert SECRET.decode() not in shown and "%b" in shown


def sealing() -> Sealing:
    """Make a submission that is to be encrypted."""
    calls = Calls(None, None, keyed=True)
    files = [Attachment("a.txt", "text/plain", SECRET)]
    task = calls.submit(
        "here", Content(SECRET), "text/plain", "observed", files, (), None, "client", {}
    )
    assert isinstance(task, Sealing)
    return task


def data_key() -> DataKey:
    dek_id, dek = body.new_dek()
    return DataKey(uuid4(), uuid4(), 1, UUID(bytes=dek_id), dek, b"wrapped", 1)


def test_a_sealed_submission_is_sent_again_as_it_was_and_sealed_anew_if_refused() -> None:
    task = sealing()
    first = task.steps()
    assert next(first).name == "oml_data_key"
    sealed = first.send(data_key())
    assert sealed.name == "oml_submit_sealed"
    with pytest.raises(NotAcknowledged):
        first.throw(NotAcknowledged(None, "lost during COMMIT"))
    second = task.steps()
    assert next(second) is sealed, "the first bytes may have arrived"
    with pytest.raises(DatabaseError):
        second.throw(DatabaseError("40001", "the version is taken"))
    third = task.steps()
    assert next(third).name == "oml_data_key"
    anew = third.send(data_key())
    assert anew.parameters != sealed.parameters
    keys_sent = [argument(c, "idempotency_key") for c in (sealed, anew)]
    assert keys_sent[0] == keys_sent[1], "one key stands for the request"


def test_what_is_sealed_opens_with_the_key_alone() -> None:
    task = sealing()
    steps = task.steps()
    next(steps)
    key = data_key()
    call = steps.send(key)
    stored = argument(call, "ciphertext")
    digest = argument(call, "plaintext_digest")
    place = body.Place(key.tenant_id.bytes, key.artifact_id.bytes, 1)
    assert body.open_part(key.dek, place, 0, digest, stored) == SECRET
    assert body.open_part(bytes(32), place, 0, digest, stored) is None
    assert not any(SECRET in p for p in call.parameters if isinstance(p, bytes))


def test_keys_and_content_are_not_shown(tmp_path: Path) -> None:
    file = str(tmp_path / "key")
    keys.generate(file)
    key = keys.load(file)[0]
    data = data_key()
    for thing, secret in (
        (Writer(key), key.secret_key),
        (data, data.dek),
        (Content(SECRET), SECRET),
        (Served(uuid4(), 1, "observed", ()), SECRET),
    ):
        for shown in (repr(thing), str(thing), f"{thing}"):
            assert repr(secret)[2:-1] not in shown and secret.hex() not in shown


def test_what_cannot_be_sent_is_the_callers_fault_and_not_the_servers() -> None:
    assert isinstance(refusal(psycopg.DataError("no NUL bytes")), UsageError)
    lost = refusal(psycopg.OperationalError("server closed the connection unexpectedly"))
    assert isinstance(lost, DatabaseError) and lost.passing
    assert not mends(refusal(psycopg.ProgrammingError("cannot adapt")), True)
    assert not isinstance(refusal(psycopg.errors.UniqueViolation()), UsageError)


@pytest.mark.parametrize("given", ["text", None, 7, [b"list"]])
def test_only_bytes_are_content(given: object) -> None:
    assert Content.of(given) is None
    with pytest.raises(UsageError):
        Calls(None, None, keyed=True).submit(
            "here", Content.of(given), "text/plain", "observed", (), (), None, "server", {}
        )


def test_content_is_taken_from_any_bytes() -> None:
    for given in (SECRET, bytearray(SECRET), memoryview(SECRET)):
        assert Content.of(given) == SECRET


def test_an_unknown_claim_is_refused() -> None:
    calls = Calls(None, None, keyed=True)
    for name in ("tenant", "reason", "payload; drop"):
        wrong: Any = {name: "x"}
        with pytest.raises(TypeError):
            calls.append("note.added", {}, wrong)
