"""What a scan reports where no good batch stands."""

from __future__ import annotations

from typing import Final

from kops.records.batch import Batch

TORN_TAIL: Final = "torn-tail"
BAD_LENGTH: Final = "bad-length"
CRC_MISMATCH: Final = "crc-mismatch"
UNKNOWN_MAGIC: Final = "unknown-magic"
ZEROES: Final = "zeroes"
GARBAGE: Final = "garbage"
CODES: Final = (TORN_TAIL, BAD_LENGTH, CRC_MISMATCH, UNKNOWN_MAGIC, ZEROES, GARBAGE)

ENDS: Final = "ends"
"""Kafka's iteration over the file ends here without a word."""
THROWS: Final = "throws"
"""Kafka's iteration over the file throws CorruptRecordException here, whatever was asked of it."""
INVALID: Final = "invalid"
"""Kafka's iteration gives a batch here; only its `ensureValid` throws, which recovery calls and a load after a clean stop does not."""


class Damage:
    """Bytes `position` to `position + length` of a file that are no good batch.

    `code`: torn-tail (a batch that is not complete at the end), bad-length (below the minimum, negative or not what the batch has),
    crc-mismatch, unknown-magic, zeroes, garbage. `reason` is a sentence. `base_offset` and `last_offset` are what the header claims, where
    it can be read, and `batch` is that header then (its CRC is wrong). Where only the length or the magic is wrong, `mended` is the batch
    with the right one: its CRC holds, so nothing of it is lost. `kafka` tells what Kafka does there: `ends`, `throws` or `invalid`.
    """

    __slots__ = ("base_offset", "batch", "code", "kafka", "last_offset", "length", "mended", "position", "reason")

    def __init__(self, position: int, length: int, code: str, reason: str, *, kafka: str = ENDS, batch: Batch | None = None) -> None:
        self.position = position
        self.length = length
        self.code = code
        self.reason = reason
        self.kafka = kafka
        self.batch = batch
        self.mended: Batch | None = None
        self.base_offset: int | None = None
        self.last_offset: int | None = None
        if batch is not None:
            self.last_offset = batch.last_offset
            # A compressed set of v0 or v1 would have to be decompressed for its first offset, and it is broken.
            self.base_offset = batch.base_offset if batch.magic > 1 or not batch.compressed else None

    def mend(self, batch: Batch, reason: str) -> None:
        """Note that one field of the header alone is wrong, and the batch as it was written."""
        self.mended = batch
        self.reason = reason
        self.base_offset, self.last_offset = batch.base_offset, batch.last_offset

    @property
    def end(self) -> int:
        """The position behind the damage."""
        return self.position + self.length

    def __repr__(self) -> str:
        return f"Damage(position={self.position}, length={self.length}, code={self.code!r}, reason={self.reason!r})"
