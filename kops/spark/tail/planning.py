"""Decides which offsets a stream reads next, and what it has lost, without files, clock or Spark.

Sources: Spark's Kafka connector (`KafkaMicroBatchStream.latestOffset`, `rateLimit`; `reportDataLoss`; `KafkaOffsetReaderAdmin` for new
and deleted partitions), Kafka's `LeaderEpochFileCache.endOffsetFor` and the consumer's check of its position (KIP-320,
`SubscriptionState.maybeCompleteValidation`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kops.errors import UsageError
from kops.spark.tail.positions import EARLIEST, LATEST, NO_EPOCH, Key, Position, Positions

DATA_LOSS: Final = "data-loss"
"""The code in column `damage` of rows that stand for records that the stream could not read."""


@dataclass(frozen=True, slots=True)
class View:
    """The currently readable part of a partition, on the serving replica.

    `start` is the log start offset, `end` the log's end, `bound` how far a stream may read. `epochs` are leader epochs with their first
    offsets, in order; empty if the log has none. `is_torn`: after `end` there are bytes that are not a batch.
    """

    topic_id: str
    start: int
    end: int
    bound: int
    epochs: tuple[tuple[int, int], ...] = ()
    is_torn: bool = False

    def epoch_before(self, offset: int) -> int:
        """The leader epoch of the record before an offset."""
        place = bisect_right(self.epochs, offset - 1, key=lambda entry: entry[1]) - 1
        return self.epochs[place][0] if place >= 0 and offset > self.start else NO_EPOCH

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch of this log that is not above `epoch`, and where it ends; for one above all of them, the log's end."""
        place = bisect_right(self.epochs, epoch, key=lambda entry: entry[0]) - 1
        if place < 0:
            return epoch, self.epochs[0][1]
        return self.epochs[place][0], self.epochs[place + 1][1] if place + 1 < len(self.epochs) else self.end


class Loss(NamedTuple):
    """Records that a stream could not read, or that it has read and that are no longer in the log. Offsets are inclusive, None if
    unknown."""

    key: Key
    first: int | None
    last: int | None
    reason: str

    def __str__(self) -> str:
        return f"{self.key[0]}-{self.key[1]}: {self.reason}"


class Limits(NamedTuple):
    """The limits of one batch; None: no limit."""

    offsets: int | None = None
    bytes: int | None = None


class Step(NamedTuple):
    """The end of the next batch, and the losses that the stream must report with it."""

    end: Positions
    losses: list[Loss]


class Range(NamedTuple):
    """Offsets `begin` to `end` (exclusive) of a partition, as one batch of the stream reads them."""

    key: Key
    topic_id: str
    begin: int
    end: int
    epoch: int
    loss: Loss | None


Weigh = Callable[[Key, int, int], int]
"""Returns about how many bytes a partition has between two offsets."""
Cut = Callable[[Key, int, int], int]
"""Returns the offset after about this many bytes from an offset on: at least one batch further."""


def first_positions(wanted: int | Positions, views: Mapping[Key, View]) -> Positions:
    """Return where a new stream begins. Raises UsageError if `startingOffsets` does not name exactly the existing partitions."""
    given = wanted.at if isinstance(wanted, Positions) else None
    if given is not None and set(given) != set(views):
        missing, unknown = _names(set(views) - set(given)), _names(set(given) - set(views))
        found = [f"it lacks {missing}" if missing else "", f"there is no {unknown}" if unknown else ""]
        why = "; ".join(each for each in found if each)
        raise UsageError(f"startingOffsets must name all partitions (-2: earliest, -1: latest): {why}")
    at: dict[Key, Position] = {}
    for key, view in sorted(views.items()):
        offset = given[key].offset if given is not None else wanted
        assert isinstance(offset, int)
        if offset in (EARLIEST, LATEST):
            offset = view.start if offset == EARLIEST else max(view.bound, view.start)
            at[key] = Position(offset, view.epoch_before(offset))
        else:
            # A given epoch is compared with the log; without one that of the log is used.
            epoch = given[key].epoch if given is not None else NO_EPOCH
            at[key] = Position(offset, epoch if epoch != NO_EPOCH or offset > view.end else view.epoch_before(offset))
    ids = {key[0]: view.topic_id for key, view in views.items() if view.topic_id}
    if isinstance(wanted, Positions):
        ids |= wanted.ids
    return Positions(at, ids)


def next_positions(start: Positions, views: Mapping[Key, View], limits: Limits, weigh: Weigh, cut: Cut) -> Step:
    """Return where the batch that begins at `start` ends. Without new records that is `start` itself."""
    ids = {**start.ids, **{key[0]: view.topic_id for key, view in views.items() if view.topic_id}}
    resumed = {key: resume(start, key, view) for key, view in sorted(views.items())}
    losses = [loss for _, loss in resumed.values() if loss is not None]
    losses += [_gone(key) for key in sorted(set(start.at) - set(views))]
    ends = _admit({key: (begin, max(views[key].bound, begin)) for key, (begin, _) in resumed.items()}, limits, weigh, cut)
    at: dict[Key, Position] = {}
    for key, view in views.items():
        before, (_, loss) = start.position(key), resumed[key]
        goes_on = before is not None and loss is None and ends[key] == before.offset
        at[key] = before if before is not None and goes_on else Position(ends[key], view.epoch_before(ends[key]))
    gone = {key: position for key, position in {**start.gone, **start.at}.items() if key not in views and not _is_older(key, start, ids)}
    begins = {key: begin for key, (begin, loss) in resumed.items() if loss is not None}
    if at == start.at and ids == start.ids and gone == start.gone and not begins:
        return Step(start, losses)
    return Step(Positions(at, ids, begins, gone), losses)


def resume(start: Positions, key: Key, view: View) -> tuple[int, Loss | None]:
    """Return the offset at which a partition continues, and the loss if that is not its position."""
    position = start.position(key)
    if position is None:
        return view.start, _new_partition(key, view.start)
    known = start.ids.get(key[0], "")
    if known and view.topic_id and known != view.topic_id:
        return view.start, _created_again(key, known, view.topic_id)
    if position.offset < view.start:
        return view.start, _deleted(key, position.offset, view.start)
    if position.epoch != NO_EPOCH and view.epochs:
        epoch, end = view.end_of_epoch(position.epoch)
        if end < position.offset and not (view.is_torn and end == view.end):
            begin = max(end, view.start)
            return begin, _cut(key, begin, position.offset)
        if epoch != position.epoch:
            return position.offset, _other_epoch(key, position)
    elif position.offset > view.end and not view.is_torn:
        return max(view.end, view.start), _cut(key, max(view.end, view.start), position.offset)
    return position.offset, None


def ranges(start: Positions, end: Positions) -> list[Range]:
    """Return the ranges of the batch from `start` to `end`: the same for every call."""
    found: list[Range] = []
    for key, position in sorted(end.at.items()):
        before = start.position(key)
        topic_id = end.ids.get(key[0], "")
        begin = end.begins.get(key, before.offset if before is not None else 0)
        loss = _loss_of(start, end, key, before, begin) if key in end.begins else None
        if begin < position.offset or loss is not None:
            found.append(Range(key, topic_id, begin, position.offset, position.epoch, loss))
    for key in sorted(set(start.at) - set(end.at)):
        offset = start.at[key].offset
        found.append(Range(key, start.ids.get(key[0], ""), offset, offset, NO_EPOCH, _gone(key)))
    return found


def can_serve(view: View, wanted: Range) -> bool:
    """Whether a replica has the records of a range: from its beginning to its end, of the same topic and leader epochs."""
    if wanted.topic_id and view.topic_id and wanted.topic_id != view.topic_id:
        return False
    if view.start > wanted.begin or (view.end < wanted.end and not view.is_torn):
        return False
    if wanted.epoch == NO_EPOCH or not view.epochs or wanted.begin == wanted.end:
        return True
    epoch, end = view.end_of_epoch(wanted.epoch)
    return epoch == wanted.epoch and (end >= wanted.end or view.is_torn)


def _admit(available: Mapping[Key, tuple[int, int]], limits: Limits, weigh: Weigh, cut: Cut) -> dict[Key, int]:
    """The ends within the limits. Each partition has a share by its size, and at least one offset (`rateLimit`)."""
    ends = {key: end for key, (_, end) in available.items()}
    if limits.offsets is not None:
        total = sum(end - begin for begin, end in available.values())
        if total > limits.offsets:
            for key, (begin, end) in available.items():
                ends[key] = min(end, begin + _share(limits.offsets, end - begin, total))
    if limits.bytes is not None:
        sizes = {key: weigh(key, begin, ends[key]) for key, (begin, _) in available.items() if ends[key] > begin}
        total = sum(sizes.values())
        if total > limits.bytes:
            for key, size in sizes.items():
                ends[key] = min(ends[key], max(cut(key, available[key][0], _share(limits.bytes, size, total)), available[key][0] + 1))
    return ends


def _share(limit: int, size: int, total: int) -> int:
    """Nothing for nothing, else at least 1, so that a small partition is not starved by large ones."""
    part = limit * size / total
    return math.ceil(part) if part < 1 else math.floor(part)


def _loss_of(start: Positions, end: Positions, key: Key, before: Position | None, begin: int) -> Loss | None:
    if before is None:
        return _new_partition(key, begin)
    known, now = start.ids.get(key[0], ""), end.ids.get(key[0], "")
    if known and now and known != now:
        return _created_again(key, known, now)
    if begin > before.offset:
        return _deleted(key, before.offset, begin)
    if begin < before.offset:
        return _cut(key, begin, before.offset)
    return _other_epoch(key, before)


def _is_older(key: Key, start: Positions, ids: Mapping[str, str]) -> bool:
    """Whether a partition is of a topic that has been created again since."""
    known = start.ids.get(key[0], "")
    return bool(known) and ids[key[0]] != known


def _gone(key: Key) -> Loss:
    return Loss(key, None, None, "the partition is gone; its unread records are lost")


def _new_partition(key: Key, begin: int) -> Loss | None:
    return Loss(key, 0, begin - 1, f"the new partition begins at offset {begin} instead of 0") if begin else None


def _created_again(key: Key, known: str, now: str) -> Loss:
    return Loss(key, None, None, f"the topic was deleted and created again (it had the id {known}, now {now})")


def _deleted(key: Key, offset: int, begin: int) -> Loss:
    return Loss(key, offset, begin - 1, f"offsets {offset} to {begin - 1} were deleted before they were read; the log begins at {begin}")


def _cut(key: Key, begin: int, offset: int) -> Loss:
    return Loss(key, begin, offset - 1, f"the log was cut at offset {begin}; offsets {begin} to {offset - 1}, which were read, are gone")


def _other_epoch(key: Key, position: Position) -> Loss:
    return Loss(key, None, None, f"the log has no leader epoch {position.epoch}, which was read up to offset {position.offset}")


def _names(keys: Iterable[Key]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(keys))
