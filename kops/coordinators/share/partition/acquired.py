"""Acquired records in the form of a response. Sources: ShareAcquiredRecords, ShareFetchUtils, SharePartition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kops.records.batch import Batch
from kops.records.isolation import AbortedTransaction
from kops.records.record import ABORT, CONTROL_TYPES, control_type_id


class AcquiredRange(NamedTuple):
    """Offsets first to last with the same delivery count."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acquired(NamedTuple):
    """The ranges that one fetch has acquired. The count includes the offsets of gaps."""

    ranges: Sequence[AcquiredRange] = ()
    offset_count: int = 0


NOTHING: Final = Acquired()


def joined(ranges: Iterable[AcquiredRange]) -> list[AcquiredRange]:
    """Join adjacent ranges with the same delivery count."""
    found: list[AcquiredRange] = []
    for each in ranges:
        last = found[-1] if found else None
        if last is not None and each.first_offset == last.last_offset + 1 and each.delivery_count == last.delivery_count:
            found[-1] = last._replace(last_offset=each.last_offset)
        else:
            found.append(each)
    return found


def aborted_batches(batches: Iterable[Batch], aborted: Iterable[AbortedTransaction]) -> list[Batch]:
    """Return the batches of aborted transactions."""
    waiting = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    producers: set[int] = set()
    found = []
    for batch in batches:
        if not batch.has_producer_id:
            continue
        while waiting and waiting[-1][1] <= batch.last_offset:
            producers.add(waiting.pop()[0])
        if batch.is_control and _aborts(batch):
            producers.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in producers:
            found.append(batch)
    return found


def without(ranges: Sequence[AcquiredRange], batches: Sequence[Batch]) -> list[AcquiredRange]:
    """Return the ranges without the offsets of these batches. Both lists are sorted."""
    found: list[AcquiredRange] = []
    index = 0
    for each in ranges:
        rest: AcquiredRange | None = each
        while rest is not None and index < len(batches):
            batch = batches[index]
            unresolved, rest = rest, _cut(rest, batch, found)
            if unresolved.last_offset > batch.last_offset:
                index += 1
            else:
                break
        if rest is not None:
            found.append(rest)
    return found


def slice_bounds(batches: Sequence[Batch], acquired: Sequence[AcquiredRange]) -> tuple[int, int]:
    """Return the first and end index of the fetched batches to send. Only batches before and after all acquired records are left out."""
    first_offset, last_offset = acquired[0].first_offset, acquired[-1].last_offset
    first = 0
    for index in range(1, len(batches)):
        if batches[index].base_offset <= first_offset:
            first = index
        elif batches[index].base_offset > last_offset:
            return first, index
    return first, len(batches)


def _cut(rest: AcquiredRange, batch: Batch, found: list[AcquiredRange]) -> AcquiredRange | None:
    """Remove a batch from a range. The part before the batch is appended to `found`, the part after it is returned."""
    if rest.last_offset < batch.base_offset:
        found.append(rest)
        return None
    if rest.first_offset > batch.last_offset:
        return rest
    if rest.first_offset < batch.base_offset:
        found.append(rest._replace(last_offset=batch.base_offset - 1))
    return rest._replace(first_offset=batch.last_offset + 1) if rest.last_offset > batch.last_offset else None


def _aborts(batch: Batch) -> bool:
    records = batch.records()
    return bool(records) and control_type_id(records[0].key)[1] == CONTROL_TYPES.index(ABORT)
