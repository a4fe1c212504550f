"""Ask witnesses for their cosignatures of a checkpoint (c2sp.org/tlog-witness, add-checkpoint).

A witness remembers the newest checkpoint of a log that it saw, and cosigns another only when it is
shown that this goes on from it. So a log cannot show one history here and another there.
"""

import logging
import re
import time
from collections.abc import MutableMapping
from concurrent.futures import ThreadPoolExecutor

import urllib3

from oml.core import merkle, note
from oml.tlog.consistency import encode
from oml.tlog.policy import Policy, Witness, printable

log = logging.getLogger("oml.witness")

TIMEOUT_S = 5.0
"""Seconds to connect, seconds to wait for a part of an answer, and seconds that it may take."""
MAX_ANSWER_BYTES = 256 * 1024

_AT_ONCE = 8
_TRIES = 3
_SIZE = re.compile(rb"(0|[1-9][0-9]{0,18})\n")

_pool = urllib3.PoolManager(
    maxsize=_AT_ONCE, timeout=urllib3.Timeout(TIMEOUT_S), retries=False, headers={"Accept": "*/*"}
)


class WitnessError(Exception):
    """A witness did not cosign, and why."""


def collect(
    policy: Policy,
    checkpoint: bytes,
    tiles: merkle.Tiles,
    old_size_of: MutableMapping[str, int],
) -> list[bytes]:
    """Return the cosignature lines, each with its newline, of the policy's witnesses with a URL.

    ``tiles`` are those of the log that the checkpoint is of. ``old_size_of`` says up to which size
    a witness saw that log, under the text of its key; what is missing is asked of the witness, and
    what it says is put in. Witnesses are asked at the same time; one that fails is logged and left
    out. Raises note.NoteError for a checkpoint that is none.
    """
    head, signed = note.parse_checkpoint(checkpoint)
    asked = [witness for witness in policy.witnesses if witness.url is not None]
    lines: list[bytes] = []
    if not asked:
        return lines

    def ask(witness: Witness) -> list[note.Signature]:
        try:
            return _ask(witness, head, signed, checkpoint, tiles, old_size_of)
        except (WitnessError, merkle.ProofError) as error:
            log.warning("witness %s did not cosign: %s", printable(witness.name), error)
            return []

    with ThreadPoolExecutor(min(len(asked), _AT_ONCE), "witness") as pool:
        for made in pool.map(ask, asked):
            lines += (signature.line().encode() for signature in made)
    return lines


def _ask(
    witness: Witness,
    head: note.Checkpoint,
    signed: note.Note,
    checkpoint: bytes,
    tiles: merkle.Tiles,
    old_size_of: MutableMapping[str, int],
) -> list[note.Signature]:
    """Return a witness' own cosignatures. Raises WitnessError, merkle.ProofError."""
    key = witness.verifier.vkey
    old = min(old_size_of.get(key, 0), head.size)
    for _ in range(_TRIES):
        path = merkle.consistency_proof(tiles, old, head.size)
        status, answer = _post(f"{witness.url}", encode(old, path, checkpoint))
        if status == 200:
            made = _cosignatures(witness, signed, answer)
            old_size_of[key] = head.size
            return made
        if status != 409:
            raise WitnessError(f"it answered with status {status}")
        size = _SIZE.fullmatch(answer)
        if size is None:
            raise WitnessError("it answered with a conflict and no size")
        seen = old_size_of[key] = int(size[1])
        if seen > head.size:
            raise WitnessError(
                f"it has seen the log at {seen} entries, and this checkpoint has {head.size}"
            )
        old = seen
    raise WitnessError("the size it has seen keeps changing")


def _cosignatures(witness: Witness, signed: note.Note, answer: bytes) -> list[note.Signature]:
    try:
        listed = note.parse_signatures(answer.decode())
        of_it = (witness.verifier.name, witness.verifier.key_id)
        made = [s for s in listed if (s.name, s.key_id) == of_it]
        seconds = note.cosigned_at(note.Note(signed.text, tuple(made)), witness.verifier)
    except ValueError as error:
        raise WitnessError(f"its answer is no cosignature: {error}") from None
    if not seconds:
        raise WitnessError("its answer has no cosignature of its key with a time")
    return made


def _post(url: str, body: bytes) -> tuple[int, bytes]:
    """Return the status and the content of the answer. Raises WitnessError."""
    until = time.monotonic() + TIMEOUT_S
    try:
        answer = _pool.request(
            "POST", f"{url.rstrip('/')}/add-checkpoint", body=body, preload_content=False,
            redirect=False, headers={"Content-Type": "text/plain; charset=utf-8"},
        )  # fmt: skip
        content = b""
        try:
            for part in answer.stream(16 * 1024):
                content += part
                if len(content) > MAX_ANSWER_BYTES or time.monotonic() > until:
                    answer.close()
                    raise WitnessError("its answer is too long, or takes too long")
        finally:
            answer.release_conn()
        return answer.status, content
    except urllib3.exceptions.HTTPError as error:
        raise WitnessError(f"it cannot be asked: {error}") from None
