"""Damage: what a scan reports where it finds no good batch."""

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
"""Kafka's iteration over the file ends here silently."""
THROWS: Final = "throws"
"""Kafka's iteration over the file throws CorruptRecordException here in every case."""
INVALID: Final = "invalid"
"""Kafka's iteration returns a batch here. Only `ensureValid` throws, which recovery calls, but not a load after a clean stop."""

_LEGACY_BITS: Final = (0x03, 0x0B)
"""The bits of the attributes that v0 and v1 use: the codec, and in v1 the type of the timestamp (LegacyRecord)."""


class Damage:
    """The bytes of a file from `position` to `position + length`, which are not a good batch.

    `code`: torn-tail (an incomplete batch at the end), bad-length (below the minimum, negative, or not the length of the batch),
    crc-mismatch, unknown-magic, zeroes, garbage. `reason` is a sentence. If the header is readable, `base_offset` and `last_offset` are its
    claims, and `batch` is that header, with a wrong CRC. If only the length or the magic is wrong, `mended` is the batch with the correct
    one: its CRC matches, so nothing is lost. `kafka` is Kafka's reaction: `ends`, `throws` or `invalid`.
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
            # The first offset of a compressed set of v0 or v1 needs decompression, but this set is broken.
            self.base_offset = batch.base_offset if batch.magic > 1 or not batch.compressed else None

    def mend(self, batch: Batch, reason: str) -> None:
        """Record that only one field of the header is wrong, and the batch with the corrected field."""
        self.mended = batch
        self.reason = reason
        self.base_offset, self.last_offset = batch.base_offset, batch.last_offset

    @property
    def has_offsets(self) -> bool:
        """Whether the claimed offsets can be right. A header with attributes that v0 or v1 do not have is no header of theirs."""
        batch = self.batch
        return batch is None or batch.magic not in (0, 1) or not batch.attributes & ~_LEGACY_BITS[batch.magic]

    @property
    def end(self) -> int:
        """The position after the damage."""
        return self.position + self.length

    def __repr__(self) -> str:
        return f"Damage(position={self.position}, length={self.length}, code={self.code!r}, reason={self.reason!r})"
