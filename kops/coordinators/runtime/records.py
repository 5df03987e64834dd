"""Records of coordinators' topics: a key, and a value with its version or none (Kafka's CoordinatorRecord, CoordinatorRecordSerde)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kops.protocol.declaration import Message
from kops.protocol.record_values import read_coordinator_key, read_coordinator_value, write_coordinator_key, write_versioned


class CoordinatorRecord(NamedTuple):
    """A record. Without a value it is a tombstone; `version` is the value's, -1 without one."""

    key: Message
    value: Message | None = None
    version: int = -1

    def key_bytes(self) -> bytes:
        """The key as it is written."""
        return write_coordinator_key(self.key)

    def value_bytes(self) -> bytes | None:
        """The value as it is written."""
        return None if self.value is None else write_versioned(self.value, self.version)


class RecordReader:
    """Reads records as `read_record` does, many of the same types."""

    def __init__(self, types: Mapping[int, str]) -> None:
        self._types = types
        self._classes: dict[bytes, tuple[type[Message], type[Message]]] = {}

    def read(self, key: bytes, value: bytes | None) -> CoordinatorRecord:
        """The record with these bytes. Raises DecodeError."""
        known = self._classes.get(key[:2])
        if known is None or value is None or len(value) < 2:
            record = read_record(key, value, self._types)
            if record.value is not None:
                self._classes[bytes(key[:2])] = type(record.key), type(record.value)
            return record
        key_class, value_class = known
        version = value[0] << 8 | value[1]
        if version not in value_class.READERS or 0 not in key_class.READERS:
            return read_record(key, value, self._types)
        return CoordinatorRecord(key_class.READERS[0](key, 2)[0], value_class.READERS[version](value, 2)[0], version)


def read_record(key: bytes, value: bytes | None, types: Mapping[int, str]) -> CoordinatorRecord:
    """The record with these bytes; `types` as in kops.protocol.registry (see there). Raises DecodeError."""
    if value is None:
        return CoordinatorRecord(read_coordinator_key(key, types))
    return CoordinatorRecord(read_coordinator_key(key, types), *read_coordinator_value(key, value, types))
