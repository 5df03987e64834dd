"""The decoders of `dump` for Kafka's internal topics. They give the JSON (or text) that Kafka's tool prints.

Source: DumpLogSegments (its MessageParser classes), the JSON converters of the messages, and `toString` of the classes of
`org.apache.kafka.server.log.remote.storage`. A record that can't be decoded is shown raw, with a message. Kafka's tool prints
the exception instead, or ends if a key is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kops.errors import DecodeError
from kops.forensics.dump._hot_dump import java_text
from kops.protocol import registry
from kops.protocol.json_text import json_text, to_json, uuid_text
from kops.protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kops.protocol.record_values import (
    UNKNOWN_TYPE,
    coordinator_type,
    read_coordinator_key,
    read_coordinator_value,
    read_frame,
    read_framed,
    read_versioned,
)


class RecordText(NamedTuple):
    """Key and value as printed (None: not at all), and the reason if they are shown raw."""

    key: bytes | None
    value: bytes | None
    problem: str | None = None


RecordParser = Callable[[int, bytes | None, bytes | None], RecordText]
"""(offset, key, value) -> what is printed of a record."""

CONSUMER_PROTOCOL: Final = "consumer"
_SEGMENT_STATES: Final = ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
_PARTITION_STATES: Final = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")


def _coordinator(types: Mapping[int, str]) -> RecordParser:
    def parse(offset: int, key: bytes | None, value: bytes | None) -> RecordText:
        if key is None:
            return _raw(offset, key, value, "the key is missing")
        try:
            head = {"type": str(coordinator_type(key)), "data": to_json(read_coordinator_key(key, types), 0)}
            shown = b"<DELETE>" if value is None else _coordinator_value(key, value, types)
        except DecodeError as error:
            if error.code == UNKNOWN_TYPE:
                return RecordText(b"Unknown record type %d at offset %d, skipping." % (coordinator_type(key), offset), None)
            return _raw(offset, key, value, str(error))
        return RecordText(json_text(head).encode(), shown)

    return parse


def _coordinator_value(key: bytes, value: bytes, types: Mapping[int, str]) -> bytes:
    message, version = read_coordinator_value(key, value, types)
    data = to_json(message, version)
    if type(message).__name__ == "GroupMetadataValue" and data["protocolType"] == CONSUMER_PROTOCOL:
        _open_members(message, data)
    return json_text({"version": str(version), "data": data}).encode()


def _open_members(group: Any, data: Any) -> None:
    """The subscription and assignment of a classic consumer group's members, decoded if they can be read."""
    for member, shown in zip(group.members, data["members"], strict=True):
        for name, declared in (("subscription", ConsumerProtocolSubscription), ("assignment", ConsumerProtocolAssignment)):
            try:
                message, version = read_versioned(declared, getattr(member, name))
            except DecodeError:
                continue
            shown[name] = to_json(message, version)


def _cluster_metadata(offset: int, key: bytes | None, value: bytes | None) -> RecordText:
    if value is None:
        return _raw(offset, key, value, "the value is missing")
    try:
        message, version = read_framed(value, registry.METADATA_RECORDS)
    except DecodeError as error:
        return _framed_error(offset, key, value, error, b"at")
    node = {"type": _constant(type(message).__name__), "version": version, "data": to_json(message, version)}
    return RecordText(None, json_text(node).encode())


def _constant(name: str) -> str:
    """`TopicRecord` → `TOPIC_RECORD`."""
    return "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in name).lstrip("_")


def _remote_log_metadata(offset: int, key: bytes | None, value: bytes | None) -> RecordText:
    if value is None:
        return _raw(offset, key, value, "the value is missing")
    try:
        message, _ = read_framed(value, registry.REMOTE_LOG_METADATA_RECORDS)
        return RecordText(None, _REMOTE_TEXTS[type(message).__name__](message).encode())
    except DecodeError as error:
        return _framed_error(offset, key, value, error, b"at offset")


def _framed_error(offset: int, key: bytes | None, value: bytes, error: DecodeError, at: bytes) -> RecordText:
    """Report a type of a newer Kafka in Kafka's words. For any other error the bytes are shown."""
    if error.code != UNKNOWN_TYPE:
        return _raw(offset, key, value, str(error))
    words = b"Error %b %d, skipping. org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id %d"
    return RecordText(None, words % (at, offset, read_frame(value)[0]))


def _raw(offset: int, key: bytes | None, value: bytes | None, reason: str) -> RecordText:
    shown_key, shown_value = (None if data is None else java_text(data) for data in (key, value))
    return RecordText(shown_key, shown_value, f"the record at offset {offset} can't be decoded: {reason}")


def _java(name: str, **fields: object) -> str:
    """Return the result of `toString` of a class with these fields."""
    words = {True: "true", False: "false"}
    return f"{name}{{{', '.join(f'{field}={words[value] if isinstance(value, bool) else value}' for field, value in fields.items())}}}"


def _partition(entry: Any) -> str:
    return f"{uuid_text(entry.id)}:{entry.name}-{entry.partition}"


def _segment_id(entry: Any) -> str:
    return _java("RemoteLogSegmentId", topicIdPartition=_partition(entry.topic_id_partition), id=uuid_text(entry.id))


def _custom(data: bytes | None) -> str:
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _state(number: int, names: tuple[str, ...] = _SEGMENT_STATES) -> str:
    if not 0 <= number < len(names):
        raise DecodeError(f"the state {number} is not known")
    return names[number]


def _epochs(entries: list[Any]) -> str:
    if not entries:
        raise DecodeError("segmentLeaderEpochs are empty")
    epochs = {entry.leader_epoch: entry.offset for entry in entries}
    return "{" + ", ".join(f"{epoch}={epochs[epoch]}" for epoch in sorted(epochs)) + "}"


def _check_offsets(record: Any) -> None:
    if record.start_offset < 0 or record.end_offset < record.start_offset:
        raise DecodeError(f"a segment from offset {record.start_offset} to {record.end_offset}")


def _segment(record: Any) -> str:
    _check_offsets(record)
    return _java(
        "RemoteLogSegmentMetadata",
        remoteLogSegmentId=_segment_id(record.remote_log_segment_id),
        startOffset=record.start_offset,
        endOffset=record.end_offset,
        brokerId=record.broker_id,
        maxTimestampMs=record.max_timestamp_ms,
        eventTimestampMs=record.event_timestamp_ms,
        segmentLeaderEpochs=_epochs(record.segment_leader_epochs),
        segmentSizeInBytes=record.segment_size_in_bytes,
        customMetadata=_custom(record.custom_metadata),
        state=_state(record.remote_log_segment_state),
        txnIdxEmpty=record.txn_index_empty,
    )


def _segment_update(record: Any) -> str:
    return _java(
        "RemoteLogSegmentMetadataUpdate",
        remoteLogSegmentId=_segment_id(record.remote_log_segment_id),
        customMetadata=_custom(record.custom_metadata),
        state=_state(record.remote_log_segment_state),
        eventTimestampMs=record.event_timestamp_ms,
        brokerId=record.broker_id,
    )


def _partition_delete(record: Any) -> str:
    return _java(
        "RemotePartitionDeleteMetadata",
        topicPartition=_partition(record.topic_id_partition),
        state=_state(record.remote_partition_delete_state, _PARTITION_STATES),
        eventTimestampMs=record.event_timestamp_ms,
        brokerId=record.broker_id,
    )


def _segment_snapshot(record: Any) -> str:
    return _java(
        "RemoteLogSegmentMetadataSnapshot",
        segmentId=uuid_text(record.segment_id),
        startOffset=record.start_offset,
        endOffset=record.end_offset,
        maxTimestampMs=record.max_timestamp_ms,
        segmentLeaderEpochs=_epochs(record.segment_leader_epochs),
        segmentSizeInBytes=record.segment_size_in_bytes,
        customMetadata=_custom(record.custom_metadata),
        state=_state(record.remote_log_segment_state),
        txnIdxEmpty=record.txn_index_empty,
    )


_REMOTE_TEXTS: Final[dict[str, Callable[[Any], str]]] = {
    "RemoteLogSegmentMetadataRecord": _segment,
    "RemoteLogSegmentMetadataUpdateRecord": _segment_update,
    "RemotePartitionDeleteMetadataRecord": _partition_delete,
    "RemoteLogSegmentMetadataSnapshotRecord": _segment_snapshot,
}

PARSERS: Final[dict[str, RecordParser]] = {
    "offsets": _coordinator(registry.GROUP_RECORDS),
    "transaction-log": _coordinator(registry.TRANSACTION_RECORDS),
    "cluster-metadata": _cluster_metadata,
    "remote-log-metadata": _remote_log_metadata,
    "share-group-state": _coordinator(registry.SHARE_RECORDS),
}
"""Decoder by the name of its flag, in the order in which Kafka's tool prefers them."""
