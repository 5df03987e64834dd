"""The facts about producers and transactions of a log that a scan collects, and how those of its parts are joined.

Sources: Kafka's ProducerAppendInfo (how the sequence and epoch of a batch follow), ProducerStateManager (ongoing transactions, the last
stable offset), ControlRecordType and EndTransactionMarker (a transaction's marker).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.errors import DecodeError

if TYPE_CHECKING:
    from kops.forensics.verify.facts.window import Window
    from kops.records import Batch

_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_MAX_INT: Final = 0x7FFFFFFF
_KEPT: Final = 10_000
BEGIN: Final = 0
ABORT: Final = 1
COMMIT: Final = 2


class Seen(NamedTuple):
    """A producer's batch: sequences -1 if it has none (a marker), `position` in bytes, `timestamp` its largest, in ms."""

    epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    position: int
    timestamp: int


class SequenceBreak(NamedTuple):
    """Two batches of one producer, one after the other, that don't follow each other: `gap`, `duplicate` or `epoch-back`."""

    kind: str
    producer_id: int
    before: Seen
    after: Seen


class TxnEvent(NamedTuple):
    """BEGIN (the first batch of a transaction that the part saw), ABORT or COMMIT (its marker), at `offset`."""

    kind: int
    producer_id: int
    offset: int
    position: int


def sequence_break(before: Seen, after: Seen) -> str | None:
    """Why `after` does not follow `before`, None if it does (ProducerAppendInfo.checkSequence and .checkProducerEpoch)."""
    if after.epoch < before.epoch:
        return "epoch-back"
    if after.first_sequence < 0:
        return None
    if after.epoch > before.epoch or before.last_sequence < 0:
        return "gap" if after.first_sequence > 0 else None
    expected = 0 if before.last_sequence == _MAX_INT else before.last_sequence + 1
    if after.first_sequence == expected:
        return None
    return "duplicate" if after.first_sequence < expected else "gap"


@dataclass(slots=True)
class ProducerFacts:
    """The facts about producers in a part of a log. `extend` adds the next part.

    `first` and `last`: producer id → its first and last batch (what `last` says after a marker: the marker's epoch; where that is higher,
    no sequence). `last_data`: producer id → the last batch with records. `unproven`: producer id → its first batch with records, where
    only markers of the same epoch precede it: only the part before knows which sequence it should have. `open`:
    transactions that have begun in the part and not ended.
    """

    first: dict[int, Seen] = field(default_factory=dict)
    last: dict[int, Seen] = field(default_factory=dict)
    last_data: dict[int, Seen] = field(default_factory=dict)
    unproven: dict[int, Seen] = field(default_factory=dict)
    breaks: list[SequenceBreak] = field(default_factory=list)
    events: list[TxnEvent] = field(default_factory=list)
    open: set[int] = field(default_factory=set)

    def window(self, window: Window) -> None:
        """The next batches, in order."""
        positions = window.positions
        for number, row in enumerate(window.rows):
            producer_id = row[9]
            if producer_id < 0:
                continue
            base, last, sequence, attributes = row[0], row[0] + row[6], row[11], row[5]
            control = attributes & _CONTROL
            end = -1
            if control:
                sequence = -1
            elif sequence >= 0:
                end = sequence + row[6]
                if end > _MAX_INT:
                    end -= _MAX_INT + 1
            self._batch(producer_id, Seen(row[10], sequence, end, base, last, positions[number], row[8]))
            if control:
                self._marker(producer_id, base, window.columns.batch(number))
            elif attributes & _TRANSACTIONAL and producer_id not in self.open:
                self.open.add(producer_id)
                self.events.append(TxnEvent(BEGIN, producer_id, base, positions[number]))

    def _batch(self, producer_id: int, seen: Seen) -> None:
        before = self.last.get(producer_id)
        if before is None:
            self.first[producer_id] = seen
        else:
            self._follow(producer_id, before, seen)
        self._remember(producer_id, seen, before)

    def _follow(self, producer_id: int, before: Seen, seen: Seen) -> None:
        """Note whether `seen` may follow `before`."""
        if seen.first_sequence >= 0 and producer_id not in self.last_data and self.first[producer_id].epoch == seen.epoch:
            self.unproven[producer_id] = seen
            return
        kind = sequence_break(before, seen)
        if kind is not None and len(self.breaks) < _KEPT:
            self.breaks.append(SequenceBreak(kind, producer_id, before, seen))

    def _remember(self, producer_id: int, seen: Seen, before: Seen | None) -> None:
        if seen.first_sequence >= 0:
            self.last[producer_id] = self.last_data[producer_id] = seen
        elif before is None or seen.epoch > before.epoch:
            self.last[producer_id] = seen
        else:
            self.last[producer_id] = before._replace(last_offset=seen.last_offset, position=seen.position)

    def _marker(self, producer_id: int, offset: int, batch: Batch) -> None:
        kind = _marker_kind(batch)
        if kind is not None:
            self.events.append(TxnEvent(kind, producer_id, offset, batch.position))
            self.open.discard(producer_id)

    def extend(self, after: ProducerFacts) -> None:
        """Add the facts of the part that follows."""
        for producer_id, seen in after.first.items():
            before = self.last.get(producer_id)
            unproven = after.unproven.get(producer_id)
            if before is None:
                self.first[producer_id] = seen
                if unproven is not None:
                    self.unproven[producer_id] = unproven
                continue
            self._follow(producer_id, before, seen)
            if unproven is not None:
                raised = before.epoch < seen.epoch  # The marker raised the epoch, so the sequences start again.
                self._follow(
                    producer_id, before._replace(epoch=seen.epoch, first_sequence=-1, last_sequence=-1) if raised else before, unproven
                )
        self.breaks = (self.breaks + after.breaks)[:_KEPT]
        for producer_id, seen in after.last.items():
            before = self.last.get(producer_id)
            if seen.first_sequence < 0 and producer_id not in after.last_data:
                self._remember(producer_id, seen, before)
            else:
                self.last[producer_id] = seen
        self.last_data.update(after.last_data)
        for event in after.events:
            if event.kind == BEGIN:
                if event.producer_id in self.open:
                    continue
                self.open.add(event.producer_id)
            else:
                self.open.discard(event.producer_id)
            self.events.append(event)


def _marker_kind(batch: Batch) -> int | None:
    """ABORT or COMMIT, None if the control batch is not a transaction marker or can't be read."""
    from kops.records import read_control_record

    try:
        records = batch.records()
        control = read_control_record(records[0]) if records else None
    except DecodeError:
        return None
    if control is None:
        return None
    return {"ABORT": ABORT, "COMMIT": COMMIT}.get(control.type)
