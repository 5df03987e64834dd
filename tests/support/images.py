"""Disk images that contain pieces of logs, for tests of carving: they know where each piece is and which of it is still intact."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from kops.records import Batch, BatchBuilder, scan
from kops.records.scanning.source import BytesSource

TEXT = b"the quick brown fox jumps over the lazy dog, again and again; \n"


class DiskImage:
    """Bytes that grow piece by piece, and the batches in them by position."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.data = bytearray()
        self.batches: dict[int, bytes] = {}

    def foreign(self, size: int) -> None:
        """Add bytes that are no log: random ones, zeroes, text or machine words."""
        kind = self.random.randrange(4)
        if kind == 0:
            self.data += self.random.randbytes(size)
        elif kind == 1:
            self.data += bytes(size)
        elif kind == 2:
            self.data += (TEXT * (size // len(TEXT) + 1))[:size]
        else:
            words = b"".join(self.random.randrange(1 << 20).to_bytes(8, "little") for _ in range(size // 8 + 1))
            self.data += words[:size]

    def piece(self, data: bytes) -> int:
        """Add a piece of a log and return its position."""
        at = len(self.data)
        for found in scan(BytesSource(data)):
            if isinstance(found, Batch):
                self.batches[at + found.position] = bytes(found.data())
        self.data += data
        return at

    def align(self, block: int = 4096) -> None:
        """Continue at the next block."""
        self.data += bytes(-len(self.data) % block)

    def overwrite(self, position: int, data: bytes) -> None:
        """Overwrite a part with other bytes. The batches that change are gone."""
        self.data[position : position + len(data)] = data
        self.batches = {at: batch for at, batch in self.batches.items() if self.data[at : at + len(batch)] == batch}

    def write(self, path: Path) -> Path:
        """Write the image to a file."""
        path.write_bytes(self.data)
        return path


def some_log(
    base: int, count: int, *, magic: int = 2, producer: int = -1, sequence: int = 0, epoch: int = 0, value: bytes = b"v" * 40
) -> bytes:
    """Return a log of `count` batches of three records."""
    parts = []
    for number in range(count):
        first = base + 3 * number
        if magic < 2:
            parts += [_message(magic, first + index, value) for index in range(3)]
            continue
        builder = BatchBuilder(
            magic=2,
            base_offset=first,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence + 3 * number if producer >= 0 else -1,
            partition_leader_epoch=epoch,
        )
        for index in range(3):
            builder.append(1_700_000_000_000 + first % (1 << 40) + index, b"key-%d" % index, value)
        parts.append(builder.build())
    return b"".join(parts)


def _message(magic: int, offset: int, value: bytes) -> bytes:
    builder = BatchBuilder(magic=magic, base_offset=offset)
    builder.append(1_700_000_000_000 + offset, b"k" if offset % 2 else None, value)
    return builder.build()


def batches_below(directories: Iterable[Path]) -> list[bytes]:
    """Return the batches of all logs below some directories."""
    found = []
    for directory in directories:
        for path in sorted(directory.rglob("*.log")):
            found += [bytes(each.data()) for each in scan(BytesSource(path.read_bytes())) if isinstance(each, Batch)]
    return found


def shuffled_image(seed: int, logs: Sequence[bytes]) -> DiskImage:
    """Return logs in random order with foreign data around them. Some are cut at the front or at the end, some are overwritten in part."""
    image = DiskImage(seed)
    chosen = list(logs)
    image.random.shuffle(chosen)
    for log in chosen:
        image.foreign(image.random.randrange(1, 9000))
        if image.random.random() < 0.5:
            image.align()
        low = image.random.randrange(len(log)) if image.random.random() < 0.2 else 0
        high = image.random.randrange(low, len(log)) if image.random.random() < 0.2 else len(log)
        at = len(image.data)
        image.data += log
        for found in scan(BytesSource(log)):
            if isinstance(found, Batch):
                image.batches[at + found.position] = bytes(found.data())
        image.data[at : at + low] = image.random.randbytes(low)
        image.data[at + high : at + len(log)] = image.random.randbytes(len(log) - high)
        if image.random.random() < 0.3:
            spot = at + image.random.randrange(len(log))
            stop = min(spot + 600, at + len(log))
            image.data[spot:stop] = image.random.randbytes(stop - spot)
    image.foreign(5000)
    image.batches = {at: batch for at, batch in image.batches.items() if image.data[at : at + len(batch)] == batch}
    return image
