"""The decoded records of a coordinator's partition: those that a coordinator replays when it loads the partition, and those after damage.

Sources: Kafka's `CoordinatorLoaderImpl` (order, control batches), `GroupCoordinatorRecordSerde`, `TransactionLog`. Kafka's loader skips
records of unknown types and fails at a record that it cannot decode. This module returns both raw, and continues.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.coordinators.runtime.records import RecordReader
from kops.errors import DecodeError
from kops.records import Batch, Damage, scan
from kops.records.record import control_type_id

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.inventory.tree import PartitionDir
    from kops.records import Record

NO_PRODUCER_ID: Final = -1
RAW: Final = "raw"
UNDECODABLE: Final = "the value cannot be decoded"
"""How the reason of a `Lost` begins if the batch is good, but not the value of a record in it."""
ABORT: Final = 0
COMMIT: Final = 1


class Decoded(NamedTuple):
    """A record of the coordinator; `value` is None for a tombstone, `producer_id` is -1 outside of transactions."""

    offset: int
    timestamp: int
    producer_id: int
    producer_epoch: int
    key: Any
    value: Any
    version: int


class Marker(NamedTuple):
    """The end of a producer's transaction."""

    offset: int
    timestamp: int
    producer_id: int
    producer_epoch: int
    is_commit: bool


class Raw(NamedTuple):
    """A record that is not a coordinator's, or has a type or version that Kafka 4.3 does not know."""

    partition: str
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Its fields; key and value are base64."""
        return {
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp,
            "key": _base64(self.key),
            "value": _base64(self.value),
            "reason": self.reason,
        }

    def to_row(self) -> dict[str, Any]:
        """A row of a listing: `state` is `raw`, and `raw` has key and value."""
        action = "replayed" if self.key is None and self.value is None else "decoded"
        return {
            "state": RAW,
            "timestamp": self.timestamp,
            "record_offset": self.offset,
            "log": self.partition,
            "note": f"offset {self.offset} of {self.partition} can't be {action}: {self.reason}",
            "raw": {"key": _base64(self.key), "value": _base64(self.value)},
        }


class Lost(NamedTuple):
    """Bytes of a segment that are not a valid batch. Unknown offsets are None."""

    file: str
    position: int
    length: int
    base_offset: int | None
    last_offset: int | None
    reason: str


Item = Decoded | Marker | Raw | Lost
_new: Final[Any] = tuple.__new__  # The constructor that a named tuple calls. A direct call takes a third of the time.
Decode = Callable[[bytes, bytes | None], tuple[Any, Any, int]]
"""(key, value) -> (key, value, version) of a record, decoded."""


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def unread_line(partition: PartitionDir, error: OSError) -> str:
    """Say in a line which file of a partition could not be read, and why."""
    return f"{error.filename or partition.path}: {error.strerror or error}"


def batches(files: Files, partition: PartitionDir) -> Iterator[Batch | Lost]:
    """The batches and the damage in a partition's live segments. OSError if a segment can't be read."""
    for segment in partition.live_segments:
        assert segment.log is not None
        with files.open(segment.log.path) as file:
            for item in scan(file):
                if isinstance(item, Damage):
                    yield Lost(segment.log.path, item.position, item.length, item.base_offset, item.last_offset, item.reason)
                else:
                    yield item


def marker_of(record: Record, batch: Batch) -> Marker | None:
    """Return the marker in a control record, or None for another or unreadable control record."""
    try:
        _, kind = control_type_id(record.key)
    except DecodeError:
        return None
    if kind not in (ABORT, COMMIT):
        return None
    return Marker(record.offset, record.timestamp, batch.producer_id, batch.producer_epoch, kind == COMMIT)


def decoder(types: Mapping[int, str]) -> Decode:
    """Return the decoder of records whose keys have these types (as in kops.protocol.registry)."""
    return RecordReader(types).read_parts


class CoordinatorRecords:
    """The records of one partition of an internal topic. `decode` gives key, value and version of a record, or raises DecodeError.

    `found`: the batches of a part of the partition, instead of all.
    """

    def __init__(self, files: Files, partition: PartitionDir, decode: Decode, found: Iterable[Batch | Lost] | None = None) -> None:
        self.files = files
        self.partition = partition
        self.decode = decode
        self.found = found

    def __iter__(self) -> Iterator[Item]:
        """OSError if a segment can't be read."""
        for batch in batches(self.files, self.partition) if self.found is None else self.found:
            if isinstance(batch, Lost):
                yield batch
                continue
            try:
                yield from self._markers(batch) if batch.is_control else self._decoded(batch)
            except DecodeError as error:
                yield Lost(self._file_of(batch), batch.position, batch.size, batch.base_offset, batch.last_offset, error.reason)

    def _file_of(self, batch: Batch) -> str:
        files = [each.log.path for each in self.partition.live_segments if each.log is not None and each.base_offset <= batch.base_offset]
        return files[-1] if files else self.partition.path

    def _markers(self, batch: Batch) -> Iterator[Marker]:
        for record in batch.iterate():
            marker = marker_of(record, batch)
            if marker is not None:
                yield marker

    def _decoded(self, batch: Batch) -> Iterator[Decoded | Raw]:
        decode, producer_id, producer_epoch = self.decode, batch.producer_id, batch.producer_epoch
        for offset, timestamp, _, key, value, _, _, _, _, _ in batch.iterate():
            try:
                if key is None:
                    raise DecodeError("the key is missing")
                fields = (offset, timestamp, producer_id, producer_epoch, *decode(key, value))
            except DecodeError as error:
                yield Raw(self.partition.name, offset, timestamp, key, value, error.reason)
            else:
                yield _new(Decoded, fields)
