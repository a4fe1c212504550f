"""Cut chains into segments, prove them apart, and put the proofs together again.

A segment is proved without the event before it: it says which hash that event must have, and
whoever puts the segments together compares. The verdict is the one of a verifier that goes through
the chain from its start to the first fault.
"""

import bisect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oml.core.chain import BROKEN_LINK, Created, Finding, KeyRing, Tenant
from oml.driver.pages import PAGE_ROWS, PageRead, Pages

SEGMENT_ROWS = PAGE_ROWS
_MOST_SEGMENTS = 1024  # a chain: their proofs are kept until the end


@dataclass(frozen=True)
class Stretch:
    """What is to be proved of one chain: the events above ``after`` up to seq ``upto``.

    ``head`` is the hash at ``after``. ``proved_before`` is a (seq, hash) that must be there.
    """

    created: Created
    after: int
    head: bytes
    upto: int
    proved_before: tuple[int, bytes] | None = None


class Proof(NamedTuple):
    """What was proved of a segment: see the attributes of oml.core.chain.Chain."""

    events: int
    first_prev: bytes | None
    head: bytes | None
    finding: Finding | None


class Plan:
    """All segments of all stretches, numbered from 0. Goes to each process that takes part."""

    def __init__(
        self,
        stretches: Sequence[Stretch],
        deployment_id: bytes,
        key_ring: KeyRing,
        segment_rows: int = SEGMENT_ROWS,
    ) -> None:
        self.stretches = tuple(stretches)
        self.deployment_id = deployment_id
        self.key_ring = key_ring
        self._sizes = [
            max(segment_rows, -(-(s.upto - s.after) // _MOST_SEGMENTS)) for s in self.stretches
        ]
        counts = [
            max(1, -(-(s.upto - s.after) // size))
            for s, size in zip(self.stretches, self._sizes, strict=True)
        ]
        self._firsts = [0, *itertools.accumulate(counts)]

    def __len__(self) -> int:
        return self._firsts[-1]

    def chain(self, index: int) -> Tenant:
        """Return the verifier of a stretch, at its start."""
        stretch = self.stretches[index]
        chain = Tenant(stretch.created, self.deployment_id, self.key_ring)
        chain.resume(stretch.after, stretch.head)
        chain.proved_before = stretch.proved_before
        return chain

    def prove(self, number: int, pages: Pages, page_read: PageRead) -> Proof:
        """Prove one segment."""
        index = bisect.bisect_right(self._firsts, number) - 1
        stretch, size = self.stretches[index], self._sizes[index]
        skipped = (number - self._firsts[index]) * size
        chain = self.chain(index)
        if skipped:
            chain.resume(stretch.after + skipped, None)
        upto = min(stretch.after + skipped + size, stretch.upto)
        pages.prove(chain, upto, page_read)
        return Proof(chain.events, chain.first_prev, chain.head, chain.finding)

    def joined(self, index: int, proofs: Mapping[int, Proof]) -> Tenant:
        """Return the verifier of a stretch as if it had gone through all of it by itself."""
        chain = self.chain(index)
        for number in range(self._firsts[index], self._firsts[index + 1]):
            proof = proofs[number]
            if proof.first_prev is not None and proof.first_prev != chain.head:
                chain.fail(chain.events + 1, *BROKEN_LINK)
                break
            short = proof.events < self._end(index, number)
            chain.events = proof.events
            chain.head = chain.head if proof.head is None else proof.head
            chain.finding = proof.finding
            if proof.finding is not None or short:
                break
        return chain

    def _end(self, index: int, number: int) -> int:
        stretch, size = self.stretches[index], self._sizes[index]
        return min(stretch.after + (number - self._firsts[index] + 1) * size, stretch.upto)
