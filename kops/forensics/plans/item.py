"""One readable batch of a log, as the plans of `repair`, `recover` and `heal` keep it.

A plan keeps one for each batch of the damaged partition. Compiled, it holds its numbers in itself, not as objects, in 168 bytes instead of
370.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mypy_extensions import i16, i32

from kops.records.batch import LOG_OVERHEAD, Batch

if TYPE_CHECKING:
    from kops.records.scanning.columns import Row

__all__ = ["Item"]


class Item:
    """One readable batch: its place and its header. `data` has its bytes if they were mended; `note` says how. `home` is the log to put it
    in, if it comes from another replica. `contents` is a hash of a compressed set of v0 or v1: gzip ends what it writes with a checksum, so
    different sets may have the same checksum and size."""

    __slots__ = (
        "attributes",
        "base",
        "base_sequence",
        "contents",
        "count",
        "crc",
        "data",
        "epoch",
        "home",
        "last",
        "magic",
        "max_timestamp",
        "note",
        "path",
        "position",
        "producer_epoch",
        "producer_id",
        "size",
    )

    def __init__(
        self,
        path: str,
        position: int,
        size: int,
        base: int,
        last: int,
        magic: int,
        attributes: int,
        epoch: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        max_timestamp: int,
        count: int,
        crc: int,
        data: bytes | None = None,
        note: str = "",
        home: str = "",
        contents: int = 0,
    ) -> None:
        self.path = path
        self.position = position
        self.size = size
        self.base = base
        self.last = last
        self.magic: i16 = magic
        self.attributes: i16 = attributes
        self.epoch: i32 = epoch
        self.producer_id = producer_id
        self.producer_epoch: i16 = producer_epoch
        self.base_sequence: i32 = base_sequence
        self.max_timestamp = max_timestamp
        self.count: i32 = count
        self.crc = crc
        self.data = data
        self.note = note
        self.home = home
        self.contents = contents

    @classmethod
    def of(cls, path: str, batch: Batch, *, data: bytes | None = None, note: str = "") -> Item:
        """The data kept about a batch that was read from `path`."""
        return Item(
            path,
            batch.position,
            batch.size,
            batch.base_offset,
            batch.last_offset,
            batch.magic,
            batch.attributes,
            batch.partition_leader_epoch,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.max_timestamp,
            -1 if batch.count is None else batch.count,
            batch.crc,
            data,
            note,
            contents=_hash(batch) if batch.magic < 2 and batch.compressed else 0,
        )

    @classmethod
    def of_row(cls, path: str, position: int, row: Row) -> Item:
        """The same from a header of v2 as `scan_columns` gives it. The offsets of a compressed set of v0 or v1 are in its contents."""
        epoch = row[2] if row[3] > 1 else -1
        size = row[1] + LOG_OVERHEAD
        return Item(path, position, size, row[0], row[0] + row[6], row[3], row[5], epoch, row[9], row[10], row[11], row[8], row[12], row[4])

    def fields(self) -> tuple[Any, ...]:
        """All that it holds, in the order of the arguments."""
        place = (self.path, self.position, self.size, self.base, self.last, self.magic, self.attributes, self.epoch)
        producer = (self.producer_id, self.producer_epoch, self.base_sequence, self.max_timestamp, self.count, self.crc)
        return (*place, *producer, self.data, self.note, self.home, self.contents)

    def __reduce__(self) -> tuple[Any, ...]:
        return Item, self.fields()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Item) and self.fields() == other.fields()

    def __hash__(self) -> int:
        raise TypeError("an Item can change, so it has no hash")

    def __repr__(self) -> str:
        return f"Item{self.fields()!r}"

    def mended(
        self, data: bytes, *, base: int | None = None, last: int | None = None, epoch: int | None = None, note: str | None = None
    ) -> Item:
        """The same batch with other bytes, and with what these change."""
        item = Item(*self.fields())
        item.data = data
        if base is not None:
            item.base = base
        if last is not None:
            item.last = last
        if epoch is not None:
            item.epoch = epoch
        if note is not None:
            item.note = note
        return item

    @property
    def span(self) -> int:
        """The number of offsets that it takes."""
        return self.last - self.base + 1

    @property
    def end(self) -> int:
        """The position after it."""
        return self.position + self.size

    @property
    def compressed(self) -> bool:
        """Whether its records are compressed."""
        return self.attributes & 7 != 0

    @property
    def transactional(self) -> bool:
        """Whether it belongs to a transaction (also a marker)."""
        return self.magic > 1 and self.attributes & 0x10 != 0

    @property
    def control(self) -> bool:
        """Whether it is a marker."""
        return self.magic > 1 and self.attributes & 0x20 != 0


def _hash(batch: Batch) -> int:
    """Return a hash of what the checksum covers."""
    import hashlib  # It loads OpenSSL, and few logs have such sets.

    return int.from_bytes(hashlib.blake2b(batch.data()[16:], digest_size=8).digest(), "big")
