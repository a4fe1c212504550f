"""Whoever is superuser can change anything; the verifiers find it and name it.

Each tampering is done with every trigger off, and judged by oml_verify_chain() and by oml verify.
"""

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from forge import NOT_COLUMNS, Row, flip, read_key, resign, row_of, sign
from oml.core import envelope, keys
from oml.core.chain import Fault
from systems import Connection, System

EVENTS = 6
OTHER = keys.from_seed(bytes(31) + b"\x02")
PROJECTED = [f.column for f in envelope.FIELDS if f.column not in NOT_COLUMNS]


@dataclass
class Victim:
    """A system whose tenant acme has EVENTS events, and a superuser's hands on it."""

    system: System
    superuser: Connection
    provider: uuid.UUID
    acme: uuid.UUID
    globex: uuid.UUID
    key: keys.SigningKey

    def execute(self, statement: str, *arguments: Any) -> None:
        """Change rows; there must be some."""
        assert self.superuser.execute(statement.encode(), arguments).rowcount > 0

    def rows(self, chain: uuid.UUID | None = None) -> list[Row]:
        """Return a chain as oml.core.chain reads it; by default that of acme."""
        with self.superuser.cursor(row_factory=dict_row) as cursor:
            query = (
                "select r.*, (extract(epoch from r.occurred_at) * 1000000)::bigint as occurred_at"
                " from oml.chain_rows(%s, 0, 1000) r"
            )
            return cursor.execute(query, (chain or self.acme,)).fetchall()

    def write(self, row: Row, seq: int, chain: uuid.UUID | None = None) -> None:
        """Write an event's row over the one at ``seq``, with all columns it agrees with."""
        columns = [c for c in row if c not in ("occurred_at", "seq", "tenant_id", "payload")]
        sets = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(c)) for c in columns)
        statement = sql.SQL(
            "update oml.journal set {}, payload = %s::jsonb,"
            " occurred_at = timestamptz 'epoch' + %s * interval '1 microsecond'"
            " where tenant_id = %s and seq = %s"
        ).format(sets)
        values = [*(row[c] for c in columns), row["payload"], row["occurred_at"]]
        done = self.superuser.execute(statement, [*values, chain or self.acme, seq])
        assert done.rowcount == 1


@pytest.fixture
def victim(system: System) -> Victim:
    """A system to tamper with: whoever comes is superuser, and no trigger is left on."""
    superuser = system.superuser
    superuser.execute("select oml_register_event_type('invoice.exported')")
    acme, globex = system.make("acme"), system.make("globex")
    system.bind("app", "acme")
    app = system.connect("app")
    for number in range(2, EVENTS + 1):
        app.execute(
            "select oml_append('invoice.exported', %s, operation => 'export', app_version => '1',"
            " caused_by => %s, invocation_id => 'r', entity_type => 'invoice', entity_id => %s,"
            " subject_id => 's')",
            (Jsonb({"number": number, "paid": True}), uuid.UUID(int=number), str(number)),
        )
    for table in ("journal", "outbox", "tenant", "chain_head"):
        superuser.execute(f"alter table oml.{table} disable trigger all".encode())
    row = superuser.execute("select oml.deployment_id()::uuid").fetchone()
    assert row is not None
    return Victim(system, superuser, row[0], acme, globex, read_key(system.key_file))


# --- the two judges --------------------------------------------------------------------------

Judgement = tuple[str, int | None, str | None]  # the chain, its first bad seq, the fault


def by_sql(victim: Victim) -> Judgement:
    """Judge acme with oml_verify_chain()."""
    row = victim.superuser.execute(
        "select chain, ok, first_bad_seq, fault, reason from oml_verify_chain('acme')"
    ).fetchone()
    assert row is not None
    chain, ok, seq, fault, reason = row
    assert ok == (fault is None) == (seq is None) == (reason is None)
    return chain, seq, fault


def by_command_line(victim: Victim, *options: str) -> Judgement:
    """Judge all chains with oml verify; its exit status must say the same."""
    done = victim.system.oml("verify", "--json", *options)
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] == (done.returncode == 0)
    bad = [chain for chain in document["chains"] if not chain["ok"]]
    if not bad:
        return "acme", None, None
    assert len(bad) == 1, bad
    assert bad[0]["reason"]
    return bad[0]["tenant"], bad[0]["seq"], bad[0]["class"]


# --- the tamperings --------------------------------------------------------------------------


def edited_payload(victim: Victim) -> None:
    victim.execute(
        "update oml.journal set payload = payload || '{\"number\": 99}'"
        " where tenant_id = %s and seq = 3",
        victim.acme,
    )


def payload_with_1_for_true(victim: Victim) -> None:
    victim.execute(
        "update oml.journal set payload = payload || '{\"paid\": 1}'"
        " where tenant_id = %s and seq = 3",
        victim.acme,
    )


def edited_envelope(victim: Victim) -> None:
    data = victim.rows()[2]["envelope"].replace(b'"number": 3', b'"number": 9')
    victim.execute(
        "update oml.journal set envelope = %s, hash = sha256(%s),"
        " payload = payload || '{\"number\": 9}' where tenant_id = %s and seq = 3",
        data,
        data,
        victim.acme,
    )


def broken_envelope(victim: Victim) -> None:
    victim.execute(
        "update oml.journal set envelope = envelope || '\\x00' where tenant_id = %s and seq = 3",
        victim.acme,
    )


def emptied_envelope(victim: Victim) -> None:
    victim.superuser.execute("alter table oml.journal alter envelope drop not null")
    victim.execute(
        "update oml.journal set envelope = null where tenant_id = %s and seq = 3", victim.acme
    )


def edited_hash(victim: Victim) -> None:
    victim.execute(
        "update oml.journal set hash = sha256(hash) where tenant_id = %s and seq = 3", victim.acme
    )


def swapped_pair(victim: Victim) -> None:
    for old, new in ((3, 1000), (4, 3), (1000, 4)):
        victim.execute(
            "update oml.journal set seq = %s where tenant_id = %s and seq = %s",
            new,
            victim.acme,
            old,
        )


def swapped_pair_signed_again(victim: Victim) -> None:
    third, fourth = victim.rows()[2:4]
    swapped_pair(victim)
    victim.write(resign(fourth, victim.key, seq=3), 3)
    victim.write(resign(third, victim.key, seq=4), 4)


def deleted_middle_row(victim: Victim) -> None:
    victim.execute("delete from oml.journal where tenant_id = %s and seq = 3", victim.acme)


def deleted_middle_row_and_closed_gap(victim: Victim) -> None:
    deleted_middle_row(victim)
    for seq in range(4, EVENTS + 1):
        victim.execute(
            "update oml.journal set seq = seq - 1 where tenant_id = %s and seq = %s",
            victim.acme,
            seq,
        )


def deleted_genesis(victim: Victim) -> None:
    victim.execute("delete from oml.journal where tenant_id = %s and seq = 1", victim.acme)


def deleted_tail(victim: Victim) -> None:
    victim.execute("delete from oml.journal where tenant_id = %s and seq >= 5", victim.acme)


def deleted_chain(victim: Victim) -> None:
    victim.execute("delete from oml.journal where tenant_id = %s", victim.acme)


def deleted_chain_and_outbox_rows(victim: Victim) -> None:
    deleted_chain(victim)
    victim.execute("delete from oml.outbox where tenant_id = %s", victim.acme)


def row_signed_by_another_key(victim: Victim) -> None:
    victim.write(resign(victim.rows()[2], OTHER, principal="mallory"), 3)


def row_signed_by_another_key_under_the_same_kid(victim: Victim) -> None:
    victim.write(resign(victim.rows()[2], OTHER, victim.key.kid, principal="mallory"), 3)


def row_signed_again_by_the_right_key(victim: Victim) -> None:
    victim.write(resign(victim.rows()[2], victim.key, principal="mallory"), 3)


def row_of_another_tenant(victim: Victim) -> None:
    victim.superuser.execute("alter table oml.journal drop constraint journal_event_id_key")
    victim.write(victim.rows(victim.globex)[0], 1)


def row_added_at_the_end(victim: Victim) -> None:
    copy_row(victim, EVENTS, EVENTS + 1)


def row_added_before_the_first(victim: Victim) -> None:
    copy_row(victim, 2, 0)


def copy_row(victim: Victim, seq: int, to: int) -> None:
    victim.execute(
        "insert into oml.journal select (jsonb_populate_record(j, jsonb_build_object("
        "'seq', %s::bigint, 'event_id', gen_random_uuid()))).*"
        " from oml.journal j where tenant_id = %s and seq = %s",
        to,
        victim.acme,
        seq,
    )


def deleted_provider_event(victim: Victim) -> None:
    victim.execute("delete from oml.journal where tenant_id = %s and seq = 2", victim.provider)


def deleted_provider_chain(victim: Victim) -> None:
    victim.execute("delete from oml.journal where tenant_id = %s", victim.provider)
    victim.execute("delete from oml.outbox where tenant_id = %s", victim.provider)


def edited_creation(victim: Victim) -> None:
    victim.execute(
        'update oml.journal set payload = payload || \'{"name": "hooli"}\''
        " where tenant_id = %s and payload->>'name' = 'acme'",
        victim.provider,
    )


TAMPERINGS: list[tuple[Callable[[Victim], None], str, int, Fault]] = [
    (edited_payload, "acme", 3, Fault.COLUMN_MISMATCH),
    (payload_with_1_for_true, "acme", 3, Fault.COLUMN_MISMATCH),
    (edited_envelope, "acme", 3, Fault.SIGNATURE_INVALID),
    (broken_envelope, "acme", 3, Fault.MALFORMED_ENVELOPE),
    (emptied_envelope, "acme", 3, Fault.MALFORMED_ENVELOPE),
    (edited_hash, "acme", 3, Fault.HASH_MISMATCH),
    (swapped_pair, "acme", 3, Fault.COLUMN_MISMATCH),
    (swapped_pair_signed_again, "acme", 3, Fault.BROKEN_LINK),
    (deleted_middle_row, "acme", 3, Fault.MISSING_EVENT),
    (deleted_middle_row_and_closed_gap, "acme", 3, Fault.COLUMN_MISMATCH),
    (deleted_genesis, "acme", 1, Fault.MISSING_EVENT),
    (deleted_tail, "acme", 5, Fault.TAIL_MISSING),
    (deleted_chain, "acme", 1, Fault.CHAIN_MISSING),
    (deleted_chain_and_outbox_rows, "acme", 1, Fault.CHAIN_MISSING),
    (row_signed_by_another_key, "acme", 3, Fault.UNKNOWN_KEY),
    (row_signed_by_another_key_under_the_same_kid, "acme", 3, Fault.SIGNATURE_INVALID),
    (row_signed_again_by_the_right_key, "acme", 4, Fault.BROKEN_LINK),
    (row_of_another_tenant, "acme", 1, Fault.COLUMN_MISMATCH),
    (row_added_at_the_end, "acme", EVENTS + 1, Fault.COLUMN_MISMATCH),
    (row_added_before_the_first, "acme", 1, Fault.MISSING_EVENT),
    (deleted_provider_event, "provider", 2, Fault.MISSING_EVENT),
    (deleted_provider_chain, "provider", 1, Fault.CHAIN_MISSING),
    (edited_creation, "provider", 3, Fault.COLUMN_MISMATCH),
]


def test_an_untouched_system_is_proved(victim: Victim) -> None:
    assert by_sql(victim) == ("acme", None, None)
    assert by_command_line(victim) == ("acme", None, None)


@pytest.mark.parametrize(
    ("tamper", "chain", "seq", "fault"), TAMPERINGS, ids=[t[0].__name__ for t in TAMPERINGS]
)
def test_a_tampering_is_found_and_named(
    victim: Victim,
    tamper: Callable[[Victim], None],
    chain: str,
    seq: int,
    fault: Fault,
) -> None:
    tamper(victim)
    assert by_sql(victim) == (chain, seq, fault)
    assert by_command_line(victim) == (chain, seq, fault)


def test_a_tenant_whose_events_are_untouched_is_still_proved(victim: Victim) -> None:
    deleted_middle_row(victim)
    row = victim.superuser.execute("select ok from oml_verify_chain('globex')").fetchone()
    assert row == (True,)
    assert victim.system.oml("verify", "--tenant", "globex").returncode == 0
    assert by_command_line(victim) == ("acme", 3, Fault.MISSING_EVENT)


# --- columns ---------------------------------------------------------------------------------

OTHER_VALUE = {
    "uuid": "gen_random_uuid()",
    "bytea": "sha256(coalesce({0}, ''))",
    "text": "coalesce({0}, '') || 'x'",
    "bigint": "coalesce({0}, 0) + 1",
    "integer": "{0} + 1",
    "jsonb": "'[]'",
    "timestamp with time zone": "{0} + interval '1 microsecond'",
}


def test_every_column_of_the_journal_is_covered_by_the_envelope_or_known_not_to_be(
    victim: Victim,
) -> None:
    query = (
        "select attname from pg_attribute where attrelid = 'oml.journal'::regclass and attnum > 0"
    )
    columns = {name for (name,) in victim.superuser.execute(query)}
    assert columns - set(PROJECTED) == {
        *("envelope", "hash", "kid"),
        *("idempotency_key", "request_digest"),
    }
    assert set(PROJECTED) <= columns


def test_another_value_in_any_column_is_found_and_named(victim: Victim) -> None:
    types: dict[str, str] = dict(
        victim.superuser.execute(
            "select attname, format_type(atttypid, atttypmod) from pg_attribute"
            " where attrelid = 'oml.journal'::regclass and attnum > 0"
        ).fetchall()
    )
    for column in [*PROJECTED, "kid"]:
        expected = {
            "seq": (3, Fault.MISSING_EVENT),
            "tenant_id": (3, Fault.MISSING_EVENT),
        }.get(column, (3, Fault.COLUMN_MISMATCH))
        name = sql.Identifier(column).as_string(victim.superuser)
        value = "1000" if column == "seq" else OTHER_VALUE[types[column]].format(name)
        with victim.superuser.transaction(force_rollback=True):
            victim.execute(
                f"update oml.journal set {name} = {value} where tenant_id = %s and seq = 3",
                victim.acme,
            )
            assert by_sql(victim)[1:] == expected, column


def test_an_emptied_column_is_found_and_named(victim: Victim) -> None:
    for column in [c for c in PROJECTED if c not in ("seq", "tenant_id")] + ["kid", "hash"]:
        if victim.rows()[2][column] is None:
            continue
        name = sql.Identifier(column).as_string(victim.superuser)
        with victim.superuser.transaction(force_rollback=True):
            victim.superuser.execute(f"alter table oml.journal alter {name} drop not null".encode())
            victim.execute(
                f"update oml.journal set {name} = null where tenant_id = %s and seq = 3",
                victim.acme,
            )
            assert by_sql(victim)[1] == 3, column


@pytest.mark.parametrize(
    "time", ["infinity", "-infinity", "294276-12-31", "4713-01-01 BC", "1969-12-31 23:59:59+00"]
)
def test_a_time_out_of_range_is_found_and_named(victim: Victim, time: str) -> None:
    victim.execute(
        "update oml.journal set occurred_at = %s::timestamptz where tenant_id = %s and seq = 3",
        time,
        victim.acme,
    )
    assert by_sql(victim) == ("acme", 3, Fault.COLUMN_MISMATCH)
    assert by_command_line(victim) == ("acme", 3, Fault.COLUMN_MISMATCH)


# --- bytes that are no text -------------------------------------------------------------------

TEXTS = [f.column for f in envelope.FIELDS if f.kind == "text"]
NO_TEXT = [b"\xff", b"a\x80", b"\xc3", b"\xed\xa0\x80", b"\\x\xff\\"]  # one is a surrogate's


def store_bytes(victim: Victim, column: str, data: bytes) -> None:
    """Put bytes into a text column of acme's event 3, or into its payload's only text."""
    if column == "payload":
        row = resign(victim.rows()[2], victim.key, payload=b'{"note": "########"}')
        victim.write(row, 3)
        kind = "jsonb"
        value = "overlay(payload::bytea placing %s from position('########' in payload::bytea))"
        data = data.ljust(8, b"#")
    else:
        kind, value = "text", "%s"
    name = sql.Identifier(column).as_string(victim.superuser)
    victim.execute(
        f"update oml.journal set {name} = ({value})::{kind} where tenant_id = %s and seq = 3",
        data,
        victim.acme,
    )


@pytest.fixture
def unguarded(victim: Victim) -> Victim:
    """The victim when its superuser can take bytes for text, and no constraint is left."""
    victim.superuser.execute("create cast (bytea as text) without function")
    victim.superuser.execute("create cast (bytea as jsonb) without function")
    victim.superuser.execute("create cast (jsonb as bytea) without function")
    names = victim.superuser.execute(
        "select conname from pg_constraint where conrelid = 'oml.journal'::regclass"
        " and contype = 'c'"
    ).fetchall()
    for (name,) in names:
        drop = sql.SQL("alter table oml.journal drop constraint {}").format(sql.Identifier(name))
        victim.superuser.execute(drop)
    return victim


@pytest.mark.parametrize("column", [*TEXTS, "payload"])
def test_bytes_that_are_no_text_are_found_and_named(unguarded: Victim, column: str) -> None:
    for data in NO_TEXT:
        with unguarded.superuser.transaction(force_rollback=True):
            store_bytes(unguarded, column, data)
            assert by_sql(unguarded) == ("acme", 3, Fault.COLUMN_MISMATCH), data


@pytest.mark.parametrize("column", ["type", "principal", "subject_id", "impersonation", "payload"])
def test_both_judges_name_the_column_that_holds_no_text(unguarded: Victim, column: str) -> None:
    store_bytes(unguarded, column, b"\xff\xfe")
    assert judged(unguarded) == ("acme", 3, Fault.COLUMN_MISMATCH)
    row = unguarded.superuser.execute("select reason from oml_verify_chain('acme')").fetchone()
    assert row == (f"column {column} differs from the envelope",)
    assert row[0] in unguarded.system.oml("verify").stdout


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_bytes_that_are_no_text_on_the_provider_chain_are_named(
    unguarded: Victim, jobs: str
) -> None:
    unguarded.execute(
        "update oml.journal set principal = '\\xff'::bytea::text where tenant_id = %s and seq = 2",
        unguarded.provider,
    )
    expected = ("provider", 2, Fault.COLUMN_MISMATCH)
    assert by_sql(unguarded) == expected
    assert by_command_line(unguarded, "--jobs", jobs) == expected


def test_a_tenants_name_that_is_no_text_is_found_and_named(unguarded: Victim) -> None:
    unguarded.superuser.execute("alter table oml.tenant drop constraint tenant_name_check")
    unguarded.execute(
        "update oml.tenant set name = '\\xff'::bytea::text where tenant_id = %s", unguarded.acme
    )
    expected = ("acme", 1, Fault.CHAIN_MISSING)
    assert by_sql(unguarded) == expected
    assert by_command_line(unguarded) == expected


def test_a_deployment_whose_id_is_no_text_is_refused(unguarded: Victim) -> None:
    unguarded.superuser.execute("alter table oml.setting disable trigger all")
    unguarded.execute(
        "update oml.setting set value = '\\xff'::bytea::text where name = 'deployment_id'"
    )
    with pytest.raises(psycopg.Error):
        by_sql(unguarded)
    assert unguarded.superuser.execute("select 1").fetchone() == (1,)
    done = unguarded.system.oml("verify", "--json")
    assert done.returncode == 2
    assert "which is no id" in json.loads(done.stderr)["error"]


@pytest.mark.parametrize("setting", ["client_encoding = 'LATIN1'", "backslash_quote = off"])
def test_texts_are_proved_whatever_the_session_is_set_to(victim: Victim, setting: str) -> None:
    app = victim.system.connect("app")
    for text in ("Zoë", "\\x00", "a\\", "\\134", "'"):
        app.execute(
            "select oml_append('invoice.exported', %s, subject_id => %s)",
            (Jsonb({"note": text}), text),
        )
    victim.superuser.execute(f"set {setting}".encode())
    victim.superuser.execute("set standard_conforming_strings = off")
    assert by_sql(victim) == ("acme", None, None)


# --- the tenant's row ------------------------------------------------------------------------


def test_a_deleted_tenant_row_is_found_and_named(victim: Victim) -> None:
    victim.execute("delete from oml.tenant where tenant_id = %s", victim.acme)
    assert by_sql(victim) == ("acme", 1, Fault.CHAIN_MISSING)
    assert by_command_line(victim) == ("acme", 1, Fault.CHAIN_MISSING)


def test_a_deleted_row_of_the_provider_is_found_and_named(victim: Victim) -> None:
    victim.execute("delete from oml.tenant where tenant_id = %s", victim.provider)
    row = victim.superuser.execute(
        "select chain, ok, fault from oml_verify_chain('provider')"
    ).fetchone()
    assert row == ("provider", False, Fault.CHAIN_MISSING)


def test_tenants_that_swapped_their_names_are_found_and_named(victim: Victim) -> None:
    for old, new in (("acme", "x"), ("globex", "acme"), ("x", "globex")):
        victim.execute("update oml.tenant set name = %s where name = %s", new, old)
    assert by_sql(victim) == ("acme", 1, Fault.GENESIS_MISMATCH)
    assert by_command_line(victim, "--tenant", "acme") == ("acme", 1, Fault.CHAIN_MISSING)


def test_a_tenant_that_nobody_created_is_found_and_named(victim: Victim) -> None:
    victim.execute("update oml.tenant set name = 'hooli' where name = 'acme'")
    row = victim.superuser.execute(
        "select chain, ok, first_bad_seq, fault from oml_verify_chain('hooli')"
    ).fetchone()
    assert row == ("hooli", False, 1, Fault.GENESIS_MISMATCH)


# --- what only a pin or a checkpoint shows ---------------------------------------------------


def sign_everything_again(victim: Victim, key: keys.SigningKey) -> None:
    """Rewrite all chains so that they agree among themselves, under another root key."""
    hashes: dict[str, str] = {}
    for chain in (victim.provider, victim.acme, victim.globex):
        prev = envelope.GENESIS_PREV
        for row in victim.rows(chain):
            text: str = row["payload"]
            for old, new in hashes.items():
                text = text.replace(old, new)
            text = text.replace(victim.key.public_key.hex(), key.public_key.hex())
            text = text.replace(victim.key.kid.hex(), key.kid.hex())
            forged = resign(row, key, prev_hash=prev, payload=text.encode())
            victim.write(forged, row["seq"], chain)
            hashes[row["hash"].hex()] = forged["hash"].hex()
            prev = forged["hash"]


def test_chains_wholly_signed_again_under_another_root_are_found_with_the_root_pinned(
    victim: Victim,
) -> None:
    root = victim.key.public_key.hex()
    assert by_command_line(victim, "--root-key", root) == ("acme", None, None)
    sign_everything_again(victim, OTHER)
    assert by_sql(victim) == ("acme", None, None)
    assert by_command_line(victim) == ("acme", None, None)
    judged = by_command_line(victim, "--root-key", root)
    assert judged == ("provider", 1, Fault.ROOT_MISMATCH)


def test_whoever_holds_the_key_too_can_rewrite_a_chain_and_only_a_checkpoint_would_show_it(
    victim: Victim,
) -> None:
    rows = victim.rows()
    prev = rows[1]["hash"]
    for row in rows[2:]:
        forged = resign(row, victim.key, prev_hash=prev, principal="mallory")
        victim.write(forged, row["seq"])
        prev = forged["hash"]
    assert by_sql(victim) == ("acme", None, None)


def test_a_tail_deleted_with_its_outbox_rows_would_be_shown_by_a_checkpoint_alone(
    victim: Victim,
) -> None:
    deleted_tail(victim)
    victim.execute("delete from oml.outbox where tenant_id = %s and chain_seq >= 5", victim.acme)
    assert by_sql(victim) == ("acme", None, None)


# --- after a rotation -------------------------------------------------------------------------


@pytest.fixture
def rotated(victim: Victim) -> Victim:
    """The victim after a rotation, with no event of the new key on acme's chain yet."""
    owner = victim.system.cluster.account
    path = victim.system.key_file.parent / f"{victim.system.database}-second.key"
    keys.generate(str(path), owner.uid, owner.gid)
    victim.execute("select oml_rotate_signing_key(%s)", f"file:{path}")
    return victim


def judged(victim: Victim) -> Judgement:
    """Judge with both and insist that they agree, whatever the number of processes."""
    found = by_sql(victim)
    assert by_command_line(victim, "--jobs", "1") == found
    assert by_command_line(victim, "--jobs", "2") == found
    return found


def test_an_event_by_a_retired_key_is_named(rotated: Victim) -> None:
    assert judged(rotated) == ("acme", None, None)
    last = rotated.rows()[-1]
    fields = envelope.decode(last["envelope"]).fields
    forged = fields | {"seq": last["seq"] + 1, "prev_hash": last["hash"], "event_id": bytes(16)}
    rotated.superuser.execute(
        "insert into oml.journal select (jsonb_populate_record(j, %s)).* from oml.journal j"
        " where j.tenant_id = %s and j.seq = %s",
        (
            Jsonb({"seq": last["seq"] + 1, "event_id": str(uuid.uuid4()), "idempotency_key": None}),
            rotated.acme,
            last["seq"],
        ),
    )
    rotated.write(row_of(sign(forged, rotated.key)), last["seq"] + 1)
    assert judged(rotated) == ("acme", last["seq"] + 1, Fault.RETIRED_KEY)
    rotated.write(row_of(sign(forged, OTHER)), last["seq"] + 1)
    assert judged(rotated) == ("acme", last["seq"] + 1, Fault.UNKNOWN_KEY)


def test_a_holder_of_the_retired_key_cannot_rewrite_what_it_signed(rotated: Victim) -> None:
    rows = rotated.rows()
    prev = rows[1]["hash"]
    for row in rows[2:]:
        forged = resign(row, rotated.key, prev_hash=prev, principal="mallory")
        rotated.write(forged, row["seq"])
        prev = forged["hash"]
    assert judged(rotated) == ("acme", rows[-1]["seq"], Fault.BROKEN_LINK)


# --- the command line's manners --------------------------------------------------------------


def test_the_command_line_names_the_fault_to_a_reader_too(victim: Victim) -> None:
    deleted_middle_row(victim)
    done = victim.system.oml("verify")
    assert done.returncode == 1
    assert "missing-event" in done.stdout
    assert victim.key.public_key.hex() in done.stdout


@pytest.mark.parametrize(
    "options", [("--tenant", "hooli"), ("--root-key", "00"), ("--root-key", "zz" * 32)]
)
def test_the_command_line_that_cannot_run_exits_with_2(
    victim: Victim, options: tuple[str, ...]
) -> None:
    done = victim.system.oml("verify", "--json", *options)
    assert done.returncode == 2
    assert json.loads(done.stderr)["error"]


def test_an_envelope_flipped_anywhere_is_found(victim: Victim) -> None:
    data = victim.rows()[2]["envelope"]
    for at in range(0, len(data), 7):
        with victim.superuser.transaction(force_rollback=True):
            victim.execute(
                "update oml.journal set envelope = %s where tenant_id = %s and seq = 3",
                flip(data, at),
                victim.acme,
            )
            assert by_sql(victim)[1] == 3, at
    assert sign(envelope.decode(data).fields, victim.key) == data
