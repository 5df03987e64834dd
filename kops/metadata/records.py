"""Metadata records as far as a broker's start depends on them: topics, partitions, registrations, configs, features.

Format: `AbstractApiMessageSerde` (unsigned varints frame version = 1, api key, version, then the flexible message) and the message
descriptors TopicRecord, PartitionRecord, … of Kafka's metadata module (names, types, versions and tags are taken from there).
A record of a known type that this module has no fields for is returned without fields: its bytes are not checked.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

from kops.errors import DecodeError
from kops.records import varint

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")

Reader = Callable[[bytes, int], tuple[Any, int]]


def read_unsigned_varint(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes: a signed int of 32 bits, as Java has it."""
    try:
        return varint.read_unsigned_varint(data, position)
    except DecodeError as error:
        raise DecodeError(f"the metadata record is cut: {error.reason}", code="bad-metadata-record", position=position) from error


def _fixed(layout: Struct) -> Reader:
    def read(data: bytes, position: int) -> tuple[Any, int]:
        end = position + layout.size
        if end > len(data):
            raise DecodeError("the metadata record ends inside a number", code="bad-metadata-record", position=position)
        return layout.unpack_from(data, position)[0], end

    return read


def _take(data: bytes, position: int, size: int) -> tuple[bytes, int]:
    if size < 0:
        raise DecodeError(f"a field of {size} bytes", code="bad-metadata-record", position=position)
    if position + size > len(data):
        raise DecodeError(
            f"the metadata record ends {position + size - len(data)} bytes early", code="bad-metadata-record", position=position
        )
    return data[position : position + size], position + size


def _uuid(data: bytes, position: int) -> tuple[str, int]:
    raw, position = _take(data, position, 16)
    return base64.urlsafe_b64encode(raw).decode().rstrip("="), position


def _compact_string(data: bytes, position: int) -> tuple[str | None, int]:
    length, position = read_unsigned_varint(data, position)
    if length == 0:
        return None, position
    raw, position = _take(data, position, length - 1)
    return raw.decode("utf-8", "replace"), position


def _array(item: Reader) -> Reader:
    def read(data: bytes, position: int) -> tuple[list[Any] | None, int]:
        count, position = read_unsigned_varint(data, position)
        if count == 0:
            return None, position
        if not 0 < count <= len(data) - position + 1:
            raise DecodeError(
                f"an array of {count - 1} entries in {len(data) - position} bytes", code="bad-metadata-record", position=position
            )
        values = []
        for _ in range(count - 1):
            value, position = item(data, position)
            values.append(value)
        return values, position

    return read


_int8: Reader = _fixed(Struct(">b"))
_int16: Reader = _fixed(_INT16)
_int32: Reader = _fixed(_INT32)
_int64: Reader = _fixed(_INT64)
_uint16: Reader = _fixed(Struct(">H"))


def _struct(*readers: Reader) -> Reader:
    """A nested structure whose fields only have to be passed over; its tagged fields follow."""

    def read(data: bytes, position: int) -> tuple[None, int]:
        for reader in readers:
            _, position = reader(data, position)
        return None, _read_tags(data, position, {}, {})

    return read


@dataclass(frozen=True, slots=True)
class _Message:
    name: str
    versions: range
    fields: tuple[tuple[str, Reader, int], ...]  # name, reader, first version
    tags: dict[int, tuple[str, Reader]] = field(default_factory=dict)


_ENDPOINT = _struct(_compact_string, _compact_string, _uint16, _int16)
_FEATURE = _struct(_compact_string, _int16, _int16)
_INTS = _array(_int32)
_UUIDS = _array(_uuid)

_MESSAGES: dict[int, _Message] = {
    0: _Message(
        "RegisterBrokerRecord",
        range(5),
        (
            ("broker_id", _int32, 0),
            ("is_migrating_zk_broker", _int8, 2),
            ("incarnation_id", _uuid, 0),
            ("broker_epoch", _int64, 0),
            ("end_points", _array(_ENDPOINT), 0),
            ("features", _array(_FEATURE), 0),
            ("rack", _compact_string, 0),
            ("fenced", _int8, 0),
            ("in_controlled_shutdown", _int8, 1),
        ),
        {0: ("log_dirs", _UUIDS), 1: ("cordoned_log_dirs", _UUIDS)},
    ),
    1: _Message("UnregisterBrokerRecord", range(1), (("broker_id", _int32, 0), ("broker_epoch", _int64, 0))),
    2: _Message("TopicRecord", range(1), (("name", _compact_string, 0), ("topic_id", _uuid, 0))),
    3: _Message(
        "PartitionRecord",
        range(3),
        (
            ("partition_id", _int32, 0),
            ("topic_id", _uuid, 0),
            ("replicas", _INTS, 0),
            ("isr", _INTS, 0),
            ("removing_replicas", _INTS, 0),
            ("adding_replicas", _INTS, 0),
            ("leader", _int32, 0),
            ("leader_epoch", _int32, 0),
            ("partition_epoch", _int32, 0),
            ("directories", _UUIDS, 1),
        ),
        {0: ("leader_recovery_state", _int8), 1: ("eligible_leader_replicas", _INTS), 2: ("last_known_elr", _INTS)},
    ),
    4: _Message(
        "ConfigRecord",
        range(1),
        (("resource_type", _int8, 0), ("resource_name", _compact_string, 0), ("name", _compact_string, 0), ("value", _compact_string, 0)),
    ),
    5: _Message(
        "PartitionChangeRecord",
        range(3),
        (("partition_id", _int32, 0), ("topic_id", _uuid, 0)),
        {
            0: ("isr", _INTS),
            1: ("leader", _int32),
            2: ("replicas", _INTS),
            3: ("removing_replicas", _INTS),
            4: ("adding_replicas", _INTS),
            5: ("leader_recovery_state", _int8),
            6: ("eligible_leader_replicas", _INTS),
            7: ("last_known_elr", _INTS),
            8: ("directories", _UUIDS),
        },
    ),
    7: _Message("FenceBrokerRecord", range(1), (("broker_id", _int32, 0), ("broker_epoch", _int64, 0))),
    8: _Message("UnfenceBrokerRecord", range(1), (("broker_id", _int32, 0), ("broker_epoch", _int64, 0))),
    9: _Message("RemoveTopicRecord", range(1), (("topic_id", _uuid, 0),)),
    12: _Message("FeatureLevelRecord", range(1), (("name", _compact_string, 0), ("feature_level", _int16, 0))),
    17: _Message(
        "BrokerRegistrationChangeRecord",
        range(4),
        (("broker_id", _int32, 0), ("broker_epoch", _int64, 0)),
        {0: ("fenced", _int8), 1: ("in_controlled_shutdown", _int8), 2: ("log_dirs", _UUIDS), 3: ("cordoned_log_dirs", _UUIDS)},
    ),
    23: _Message("BeginTransactionRecord", range(1), ()),
    24: _Message("EndTransactionRecord", range(1), ()),
    25: _Message("AbortTransactionRecord", range(1), ()),
}
# Types that a 4.3 broker knows and whose contents its start does not depend on.
_OTHER_TYPES = {
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
}


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """One record: its type's name and version, and its fields (tagged ones only where they are present; empty for types not read)."""

    name: str
    version: int
    fields: dict[str, Any]


def _read_tags(data: bytes, position: int, tags: dict[int, tuple[str, Reader]], into: dict[str, Any]) -> int:
    count, position = read_unsigned_varint(data, position)
    for _ in range(count):
        tag, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        raw, end = _take(data, position, size)
        known = tags.get(tag)
        if known is not None:
            into[known[0]], _ = known[1](raw, 0)
        position = end
    return position


def read_metadata_record(value: bytes) -> MetadataRecord:
    """Decode the value of a record of `__cluster_metadata`; DecodeError (`bad-metadata-record`) where Kafka's serde throws."""
    frame, position = read_unsigned_varint(value, 0)
    if frame != 1:
        raise DecodeError(f"metadata frame version {frame} (only 1 is known)", code="bad-metadata-record", position=0)
    api_key, position = read_unsigned_varint(value, position)
    version, position = read_unsigned_varint(value, position)
    if api_key in _OTHER_TYPES:
        return MetadataRecord(_OTHER_TYPES[api_key], version, {})
    message = _MESSAGES.get(api_key)
    if message is None:
        raise DecodeError(f"Unknown metadata id {api_key}", code="bad-metadata-record", position=position)
    if version not in message.versions:
        raise DecodeError(
            f"{message.name} of version {version}, above {message.versions[-1]}", code="bad-metadata-record", position=position
        )
    fields: dict[str, Any] = {}
    for name, reader, since in message.fields:
        if version >= since:
            fields[name], position = reader(value, position)
    position = _read_tags(value, position, message.tags, fields)
    if position != len(value):
        raise DecodeError(f"{len(value) - position} byte(s) of garbage after {message.name}", code="bad-metadata-record", position=position)
    return MetadataRecord(message.name, version, fields)


def read_kraft_voters(raw: bytes) -> list[tuple[int, str]]:
    """The voters of a KRaftVotersRecord (version 0): node id and directory id of each."""
    _, position = _int16(raw, 0)
    count, position = read_unsigned_varint(raw, position)
    endpoint = _struct(_compact_string, _compact_string, _uint16)
    voters: list[tuple[int, str]] = []
    for _ in range(max(count - 1, 0)):
        node_id, position = _int32(raw, position)
        directory_id, position = _uuid(raw, position)
        _, position = _array(endpoint)(raw, position)
        _, position = _struct(_int16, _int16)(raw, position)
        position = _read_tags(raw, position, {}, {})
        voters.append((node_id, directory_id))
    return voters
