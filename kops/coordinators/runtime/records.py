"""Records of coordinators' topics: a key, and a value with its version or no value (Kafka's CoordinatorRecord, CoordinatorRecordSerde)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kops.protocol.declaration import Message
from kops.protocol.record_values import read_coordinator_key, read_coordinator_value, write_coordinator_key, write_versioned
from kops.protocol.structure import Reader

_VERSION_BYTES: Final = 2
_MOST_KNOWN: Final = 16_384
_new: Final[Any] = tuple.__new__  # the constructor that a named tuple calls; a direct call takes a third of the time


class CoordinatorRecord(NamedTuple):
    """A record. Without a value it is a tombstone. `version` is the version of the value, or -1."""

    key: Message
    value: Message | None = None
    version: int = -1

    def key_bytes(self) -> bytes:
        """The key's bytes in the log."""
        return write_coordinator_key(self.key)

    def value_bytes(self) -> bytes | None:
        """The value's bytes in the log, or None."""
        return None if self.value is None else write_versioned(self.value, self.version)


class RecordReader:
    """Reads many records, like `read_record`, with a cache: records with the same key share one key object."""

    def __init__(self, types: Mapping[int, str]) -> None:
        self._types = types
        self._known: dict[bytes, tuple[Message, Mapping[int, Reader]]] = {}
        """For each key read before: the key object, and the readers of its values by version."""

    def read(self, key: bytes, value: bytes | None) -> CoordinatorRecord:
        """Decode a record. Raises DecodeError."""
        return _new(CoordinatorRecord, self.read_parts(key, value))  # type: ignore[no-any-return]

    def read_parts(self, key: bytes, value: bytes | None) -> tuple[Message, Message | None, int]:
        """`read`, as a tuple of key, value and version. A load reads millions."""
        known = self._known.get(key)
        if known is not None and value is not None and len(value) >= _VERSION_BYTES:
            version = value[0] << 8 | value[1]
            read_value = known[1].get(version)
            if read_value is not None:
                return known[0], read_value(value, _VERSION_BYTES)[0], version
        record = read_record(key, value, self._types)
        if known is None and record.value is not None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[bytes(key)] = record.key, type(record.value).READERS
        return record


def read_record(key: bytes, value: bytes | None, types: Mapping[int, str]) -> CoordinatorRecord:
    """Decode a record. `types` is a table as in kops.protocol.registry. Raises DecodeError."""
    if value is None:
        return CoordinatorRecord(read_coordinator_key(key, types))
    return CoordinatorRecord(read_coordinator_key(key, types), *read_coordinator_value(key, value, types))
