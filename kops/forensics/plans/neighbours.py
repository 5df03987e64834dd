"""Mends fields of batches that only their neighbours determine: leader epochs, which no checksum covers, and base sequences."""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from kops.files import Files
from kops.forensics.plans.items import Item, item_batch
from kops.records import Batch
from kops.records.build import write_batch

__all__ = ["mend_epochs", "mend_sequences"]

_NO_EPOCH: Final = -1
"""Kafka's RecordBatch.NO_PARTITION_LEADER_EPOCH. No batch has a lower one."""


def mend_epochs(files: Files, log: Sequence[Item], known: Sequence[tuple[int, int]] = ()) -> list[Item]:
    """The log with leader epochs that never go back. `known`: (epoch, start offset) entries of leader-epoch-checkpoint, ascending.

    The longest chain of possible epochs that do not go back is right; of two, the one in which more batches have an epoch. Any other batch
    gets the epoch of both neighbours if they agree, else the checkpoint's if it is between theirs, else its predecessor's.
    """
    if not log or (log[0].epoch >= _NO_EPOCH and all(after.epoch >= before.epoch for before, after in itertools.pairwise(log))):
        return list(log)
    right = _right_epochs(log)
    following: list[int | None] = [None] * len(log)
    upcoming: int | None = None
    for i in range(len(log) - 1, -1, -1):
        following[i] = upcoming
        if i in right:
            upcoming = log[i].epoch
    mended: list[Item] = []
    previous: int | None = None
    for i, item in enumerate(log):
        if i in right or item.magic < 2:
            previous = item.epoch if i in right else previous
            mended.append(item)
            continue
        low, high = previous, following[i]
        epoch = _epoch_at(known, item.base)
        if epoch is None or (low is not None and epoch < low) or (high is not None and epoch > high):
            epoch = low if low is not None else high if high is not None else item.epoch
        mended.append(_with_epoch(files, item, epoch))
    return mended


def _right_epochs(log: Sequence[Item]) -> set[int]:
    """Return the indices of the batches whose epochs are right."""
    chains = []
    for least in (0, _NO_EPOCH):
        possible = [i for i, item in enumerate(log) if item.magic < 2 or item.epoch >= least]
        chains.append({possible[i] for i in _not_decreasing([log[i].epoch for i in possible])})
    return max(chains, key=len)


def _not_decreasing(values: Sequence[int]) -> list[int]:
    ends: list[int] = []
    heads: list[int] = []
    before = [-1] * len(values)
    for i, value in enumerate(values):
        length = bisect_right(ends, value)
        before[i] = heads[length - 1] if length else -1
        if length == len(ends):
            ends.append(value)
            heads.append(i)
        else:
            ends[length] = value
            heads[length] = i
    found: list[int] = []
    i = heads[-1] if heads else -1
    while i >= 0:
        found.append(i)
        i = before[i]
    return found


def _epoch_at(known: Sequence[tuple[int, int]], offset: int) -> int | None:
    found = [epoch for epoch, start in known if start <= offset]
    return found[-1] if found else None


def _with_epoch(files: Files, item: Item, epoch: int) -> Item:
    raw = bytearray(item_batch(files, item).data())
    raw[12:16] = struct.pack(">i", epoch)
    note = f"leader epoch {item.epoch} mended to {epoch}"
    return item.mended(bytes(raw), epoch=epoch, note=f"{item.note}; {note}" if item.note else note)


def mend_sequences(files: Files, log: Sequence[Item]) -> list[Item]:
    """Return the log with base sequences mended where the producer's batches before and after leave exactly one number."""
    mended = list(log)
    chains: dict[tuple[int, int], list[int]] = {}
    for i, item in enumerate(mended):
        if item.producer_id < 0 or item.control or item.base_sequence < 0:
            continue
        latest = chains.setdefault((item.producer_id, item.producer_epoch), [])
        latest.append(i)
        if len(latest) < 3:
            continue
        first, middle, third = (mended[k] for k in latest[-3:])
        expected = _next_sequence(first.base_sequence, first.span)
        if middle.base_sequence != expected and _next_sequence(expected, middle.span) == third.base_sequence:
            mended[latest[-2]] = _with_sequence(files, middle, expected)
        del latest[0]
    return mended


def _next_sequence(sequence: int, span: int) -> int:
    return (sequence + span) & 0x7FFFFFFF


def _with_sequence(files: Files, item: Item, sequence: int) -> Item:
    batch = item_batch(files, item)
    data = write_batch(
        bytes(batch.data()[61:]),
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        count=batch.count or 0,
        attributes=batch.attributes,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=sequence,
        partition_leader_epoch=batch.partition_leader_epoch,
        magic=batch.magic,
    )
    note = f"base sequence {item.base_sequence} mended to {sequence}"
    mended = item.mended(data, note=f"{item.note}; {note}" if item.note else note)
    mended.base_sequence, mended.crc = sequence, Batch(data).crc
    return mended
