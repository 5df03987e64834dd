"""The hot path of a producer: a record's outcome, and the records of an open batch. The same typed source is interpreted, or compiled by
mypyc (see `kops._compiled`).

Source: Kafka's MemoryRecordsBuilder (append, hasRoomFor, isFull, estimated sizes), FutureRecordMetadata, ProduceRequestResult.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from mypy_extensions import mypyc_attr

from kops.records.batch import BATCH_OVERHEAD
from kops.records.varint import write_varint

_KNOWN: Final = 4096
_LONGEST: Final = _KNOWN - 32  # of key and value together
VARINTS: Final = [write_varint(number) for number in range(_KNOWN)]

REFUSED: Final = 0
ADDED: Final = 1
TOLD: Final = 2
"""What `OpenRecords.add` returns: the caller must decide; added; added, and the caller must look at the batch."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Delivery:
    """The outcome of one record, which may not be known yet."""

    __slots__ = ("_callbacks", "_error", "batch", "changed", "index", "key_size", "timestamp", "value_size")

    def __init__(self, changed: Any = None) -> None:
        self.batch: Any = None
        """The ProducerBatch that first had the record."""
        self.index: int = 0
        self.timestamp: int = -1
        self.key_size: int = -1
        self.value_size: int = -1
        self.changed: Any = changed
        """What a face needs to wait for the outcome."""
        self._callbacks: list[Callable[[Any], object]] | None = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        name = type(self).__name__
        if not self.done():
            return f"<{name}: not acknowledged yet>"
        error = self.exception()
        return f"<{name}: {self.metadata()!r}>" if error is None else f"<{name}: {error!r}>"

    def locate(self) -> tuple[Any, int]:
        """Return the batch that decides the outcome (None: there is none yet), and the record's number in it. A split replaces a batch."""
        batch, index = self.batch, self.index
        while batch is not None and batch.parts is not None:
            for part in batch.parts:
                if index < part.count:
                    batch = part
                    break
                index -= part.count
        return batch, index

    def done(self) -> bool:
        """Whether the outcome is known."""
        if self._error is not None:
            return True
        batch, _ = self.locate()
        return batch is not None and bool(batch.is_done)

    def is_told(self) -> bool:
        """Whether the outcome is known, and all callbacks for its batch have been called."""
        if self._error is not None:
            return True
        batch, _ = self.locate()
        return batch is not None and bool(batch.is_told)

    def exception(self) -> BaseException | None:
        """Return the error of a record that was not written, or None. Call this only when it is done."""
        if self._error is not None:
            return self._error
        batch, index = self.locate()
        error: BaseException | None = batch.error_of(index)
        return error

    def metadata(self) -> Any:
        """Return the place of the record (RecordMetadata), or raise its error. Call this only when it is done."""
        error = self.exception()
        if error is not None:
            raise error
        batch, index = self.locate()
        return batch.metadata_of(index, self.timestamp, self.key_size, self.value_size)

    @property
    def place(self) -> Any:
        """The partition of the record (TopicPartition), or None until it has been chosen."""
        return None if self.batch is None else self.batch.partition

    def describe(self, timestamp: int, key: bytes | None, value: bytes | None) -> None:
        """Set the record's own data for its metadata."""
        self.timestamp = timestamp
        self.key_size = -1 if key is None else len(key)
        self.value_size = -1 if value is None else len(value)

    def fail(self, error: BaseException) -> None:
        """Fail a record that is in no batch."""
        self._error = error

    def add(self, callback: Callable[[Any], object]) -> None:
        """Add a callback that gets this delivery when it is done. Call this only before it is done."""
        callbacks = self._callbacks
        if callbacks is None:
            self._callbacks = [callback]
            batch, _ = self.locate()
            if batch is not None:
                batch.records.watched.append(self)
        else:
            callbacks.append(callback)

    @property
    def has_callbacks(self) -> bool:
        """Whether it has callbacks that were not called yet."""
        return self._callbacks is not None

    def take_callbacks(self) -> Sequence[Callable[[Any], object]]:
        """Return the callbacks and forget them, because each is called only once."""
        callbacks = self._callbacks
        self._callbacks = None
        return callbacks or []


def size_with_length(data: bytes | None) -> int:
    """Return the size of a key or value in a record, with its length."""
    if data is None:
        return 1
    size = len(data)
    return size + (1 if size < 64 else 2 if size < 1 << 13 else 3 if size < 1 << 20 else 4 if size < 1 << 27 else 5)


class OpenRecords:
    """The records of a batch while it takes more. `batch` is the ProducerBatch. A compressed batch has an estimated `ratio`.

    `produced` is how much was added since a partitioner was last told, which has to be told at the latest after `room`. A batch keeps no
    reference to a delivery without callbacks, so one that the program drops needs no memory.
    """

    __slots__ = (
        "added",
        "base_timestamp",
        "batch",
        "count",
        "estimate",
        "is_closed",
        "is_compressed",
        "largest",
        "limit",
        "max_timestamp",
        "parts",
        "produced",
        "ratio",
        "room",
        "size",
        "watched",
    )

    def __init__(self, batch: Any, limit: int, *, is_compressed: bool, ratio: float) -> None:
        self.batch: Any = batch
        self.limit: int = limit
        self.is_compressed: bool = is_compressed
        self.ratio: float = ratio
        self.parts: list[bytes] = []
        self.watched: list[Delivery] = []
        self.count: int = 0
        self.size: int = 0
        self.estimate: int = BATCH_OVERHEAD
        self.largest: int = 0
        self.base_timestamp: int = -1
        self.max_timestamp: int = -1
        self.is_closed: bool = False
        self.added: int = 0
        self.produced: int = 0
        self.room: int = 0

    @property
    def is_full(self) -> bool:
        """Whether it accepts no more records."""
        return self.is_closed or (self.count > 0 and self.limit <= self.estimate)

    def append(self, record: bytes, timestamp: int, delivery: Delivery | None) -> None:
        """Append a record that fits."""
        if not self.count:
            self.base_timestamp = timestamp
        if delivery is not None:
            delivery.batch = self.batch
            delivery.index = self.count
            if delivery.has_callbacks:
                self.watched.append(delivery)
        self.parts.append(record)
        self.count += 1
        self.size += len(record)
        self.largest = max(self.largest, len(record))
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.estimate = BATCH_OVERHEAD + (int(self.size * self.ratio) if self.is_compressed else self.size)

    def begin(self, timestamp: int, key: bytes | None, value: bytes | None, delivery: Delivery) -> int:
        """Append the first record, as `add` does for later ones. An empty batch takes any record."""
        if self.count or self.is_closed:
            return REFUSED
        self.base_timestamp = timestamp
        return self._add(timestamp, key, value, delivery)

    def add(self, timestamp: int, key: bytes | None, value: bytes | None, delivery: Delivery) -> int:
        """Append a record without headers to a batch that has records, if it is surely allowed, and describe its delivery.

        A program that sends many records spends most of its time here.
        """
        return self._add(timestamp, key, value, delivery) if self.count else REFUSED

    def _add(self, timestamp: int, key: bytes | None, value: bytes | None, delivery: Delivery) -> int:
        delta = timestamp - self.base_timestamp
        count = self.count
        if self.is_closed or not 0 <= delta < _KNOWN or count >= _KNOWN:
            return REFUSED
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        if key_size + value_size >= _LONGEST:
            return REFUSED
        # The length, attributes, time, number, key, value, and no headers.
        head = b"\x00" + VARINTS[delta] + VARINTS[count]
        head += b"\x01" if key is None else VARINTS[key_size] + key
        head += b"\x01" if value is None else VARINTS[value_size]
        size = len(head) + 1 if value is None else len(head) + value_size + 1
        prefix = VARINTS[size]
        size += len(prefix)
        before = self.estimate
        if count and (self.limit <= before or self.limit < before + size):
            return REFUSED
        if value is None:
            self.parts.append(prefix + head + b"\x00")
        else:
            self.parts.append(prefix + head)
            self.parts.append(value)
            self.parts.append(b"\x00")
        delivery.batch = self.batch
        delivery.index = count
        delivery.timestamp = timestamp
        delivery.key_size = key_size
        delivery.value_size = value_size
        if delivery._callbacks is not None:
            self.watched.append(delivery)
        self.count = count + 1
        self.size += size
        if size > self.largest:
            self.largest = size
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        estimate = BATCH_OVERHEAD + (int(self.size * self.ratio) if self.is_compressed else self.size)
        self.estimate = estimate
        self.added = estimate - before or 1
        self.produced += self.added
        return TOLD if self.limit <= estimate or self.room <= self.produced else ADDED
