"""Yields the batches of salvaged runs, one by one, as they are to be written."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from kops.files import Files
from kops.forensics.plans.items import Item, item_batch
from kops.forensics.recover.copies.runs import Run, expand
from kops.records import Batch, BatchBuilder


def batches(files: Files, runs: Sequence[Run], renumber: bool) -> Iterator[Batch]:
    """Yield the batches to be written; with `renumber` at offsets without gaps."""
    following: int | None = None
    for run in runs:
        for item in expand(files, run):
            batch = item_batch(files, item)
            if renumber:
                batch = renumbered(batch, item, item.base if following is None else following)
                following = batch.next_offset
            yield batch


def renumbered(batch: Batch, item: Item, base: int) -> Batch:
    """Return the same records from another base offset on. This changes eight bytes outside of the checksum. A compressed set of v0 is
    rewritten, because the messages in it hold absolute offsets."""
    if item.magic == 0 and item.compressed:
        shift = base - batch.read_base_offset()
        builder = BatchBuilder(magic=0, codec=batch.codec, base_offset=base)
        for old in batch.iterate():
            builder.append(old.timestamp, old.key, old.value, offset=old.offset + shift)
        return Batch(builder.build())
    raw = bytearray(batch.data())
    raw[:8] = struct.pack(">q", base if item.magic > 1 else base + item.span - 1)
    return Batch(bytes(raw))
