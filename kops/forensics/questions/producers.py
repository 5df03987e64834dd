"""The producers of a partition: batches, records, and breaks in their sequences. The log is read as a whole or in parts.

Source of the rule: Kafka's `ProducerAppendInfo`, through `kops.forensics.verify.facts.producers`. Whether a batch follows depends on the
batches before it, which another part may have. So a part keeps its first batches of each producer, up to the first one with a sequence:
from there on it knows what precedes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kops.forensics.coordinators.records import Lost
from kops.forensics.verify.facts.producers import Seen, sequence_break

if TYPE_CHECKING:
    from kops.records import Batch

_COUNTERS: Final = {"gap": "gaps", "duplicate": "duplicates", "epoch-back": "epochs_back"}
_MAX_INT: Final = 0x7FFFFFFF


@dataclass(slots=True)
class Producer:
    """A producer in a part of a log.

    `unjudged`: its first batches, to be judged by what precedes the part; equal ones of the same epoch and without a sequence are one, with
    their number. `seen`: what its next batch has to follow, None as long as all of its batches are unjudged.
    """

    first_offset: int
    first_timestamp: int
    last_offset: int = -1
    last_timestamp: int = -1
    batches: int = 0
    records: int = 0
    transactional: bool = False
    breaks: dict[str, int] = field(default_factory=dict)
    first_break: int | None = None
    unjudged: list[tuple[Seen, int]] = field(default_factory=list)
    seen: Seen | None = None

    def add(self, batch: Batch) -> None:
        """Add the next batch."""
        sequence = -1 if batch.is_control else batch.base_sequence
        last = -1 if sequence < 0 else (sequence + batch.last_offset - batch.base_offset) % (_MAX_INT + 1)
        seen = Seen(batch.producer_epoch, sequence, last, batch.base_offset, batch.last_offset, batch.position, batch.max_timestamp)
        if self.seen is not None:
            self._judge(seen)
        else:
            self._wait(seen)
        self.batches += 1
        self.records += 0 if batch.is_control else batch.count or 0
        self.transactional = self.transactional or batch.is_transactional
        self.last_offset = batch.last_offset
        self.last_timestamp = max(self.last_timestamp, batch.max_timestamp)

    def _wait(self, seen: Seen) -> None:
        before = self.unjudged[-1] if self.unjudged else None
        if before is not None and seen.first_sequence < 0 and before[0].epoch == seen.epoch:
            self.unjudged[-1] = (before[0], before[1] + 1)
        else:
            self.unjudged.append((seen, 1))
        if seen.first_sequence >= 0:
            self.seen = seen

    def _judge(self, seen: Seen, number: int = 1) -> None:
        if self.seen is None:
            self.seen = seen
            return
        for _ in range(number):
            kind = sequence_break(self.seen, seen)
            if kind is not None:
                self.breaks[kind] = self.breaks.get(kind, 0) + 1
                self._broken_at(seen.base_offset)
            # A marker has no sequence. The sequence before it still counts unless the epoch rose.
            if seen.first_sequence >= 0 or seen.epoch > self.seen.epoch:
                self.seen = seen

    def _broken_at(self, offset: int | None) -> None:
        if offset is not None and self.first_break is None:
            self.first_break = offset

    def extend(self, after: Producer) -> None:
        """Add what the next part has. Everything before it has been judged (`settle`)."""
        for seen, number in after.unjudged:
            self._judge(seen, number)
        for kind, number in after.breaks.items():
            self.breaks[kind] = self.breaks.get(kind, 0) + number
        self._broken_at(after.first_break)
        self.seen = after.seen or self.seen
        self.batches += after.batches
        self.records += after.records
        self.transactional = self.transactional or after.transactional
        self.last_offset = after.last_offset
        self.last_timestamp = max(self.last_timestamp, after.last_timestamp)

    def settle(self) -> None:
        """Judge the first batches: nothing precedes them."""
        waiting, self.unjudged = self.unjudged, []
        known, broken = self.seen, self.first_break
        self.seen = self.first_break = None
        for seen, number in waiting:
            self._judge(seen, number)
        self._broken_at(broken)
        self.seen = known or self.seen

    def to_row(self, producer_id: int) -> dict[str, Any]:
        """The row of `kops scan producers`, of a producer whose batches are all judged."""
        seen = self.seen
        assert seen is not None and not self.unjudged, "settle comes first"
        return {
            "producer_id": producer_id,
            "producer_epoch": seen.epoch,
            "batches": self.batches,
            "records": self.records,
            "transactional": self.transactional,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "last_sequence": None if seen.last_sequence < 0 else seen.last_sequence,
            "first_timestamp": self.first_timestamp,
            "last_timestamp": self.last_timestamp,
            **{column: self.breaks.get(kind, 0) for kind, column in _COUNTERS.items()},
            "first_break": self.first_break,
        }


@dataclass(slots=True)
class PartProducers:
    """The producers of a part of a log by id, in the order of their first batches, and the damage."""

    producers: dict[int, Producer] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)


def read_producers(found: Iterable[Batch | Lost]) -> PartProducers:
    """Read the batches of a log, or of a part of it."""
    result = PartProducers()
    for item in found:
        if isinstance(item, Lost):
            result.lost.append(item)
        elif item.magic == 2 and item.producer_id >= 0:
            one = result.producers.get(item.producer_id)
            if one is None:
                one = result.producers[item.producer_id] = Producer(item.base_offset, item.base_timestamp)
            one.add(item)
    return result


def joined(parts: Iterable[PartProducers]) -> PartProducers:
    """The producers of a whole log, from its parts in their order."""
    result = PartProducers()
    for part in parts:
        result.lost += part.lost
        for producer_id, one in part.producers.items():
            before = result.producers.get(producer_id)
            if before is None:
                one.settle()
                result.producers[producer_id] = one
            else:
                before.extend(one)
    return result


def rows_of(whole: PartProducers) -> Iterator[dict[str, Any]]:
    """The rows of a whole log, by first offset."""
    return (one.to_row(producer_id) for producer_id, one in whole.producers.items())
