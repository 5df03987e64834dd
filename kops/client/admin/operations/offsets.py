"""Offsets of partitions, and the deletion of the records before one.

Source: Kafka's ListOffsetsHandler, DeleteRecordsHandler, OffsetSpec, ListOffsetsRequest.Builder.forConsumer (the version of each spec).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from kops.client.admin.core.asking import by_topic, deadline_ms
from kops.client.admin.core.keyed import Lookup, Outcome, keyed
from kops.client.admin.core.lookups import Leaders
from kops.client.admin.core.results import Results, error_of, missing
from kops.client.admin.core.values import ByPartition, by_partition
from kops.client.errors import KafkaError
from kops.client.offsets import EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from kops.errors import UsageError
from kops.protocol.errors import Reaction, by_name
from kops.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse, ListOffsetsRequest, ListOffsetsResponse
from kops.protocol.messages.delete_records_request import DeleteRecordsPartition, DeleteRecordsTopic
from kops.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsTopic
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.admin.core.operation import Steps
    from kops.client.client import Client
    from kops.protocol.declaration import Message

# The first version of ListOffsets that supports each of them.
_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_FIRST_COMMITTED: Final = 2
_NO_LEADER: Final = ("NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE")
IsolationLevel = Literal["read_uncommitted", "read_committed"]


class OffsetSpec(NamedTuple):
    """Which offset of a partition is wanted."""

    target: int

    @classmethod
    def latest(cls) -> OffsetSpec:
        """The end: the offset of the next record."""
        return cls(LATEST)

    @classmethod
    def earliest(cls) -> OffsetSpec:
        """The first offset."""
        return cls(EARLIEST)

    @classmethod
    def max_timestamp(cls) -> OffsetSpec:
        """The record with the largest timestamp."""
        return cls(MAX_TIMESTAMP)

    @classmethod
    def earliest_local(cls) -> OffsetSpec:
        """The first offset on the broker's own disks."""
        return cls(EARLIEST_LOCAL)

    @classmethod
    def latest_tiered(cls) -> OffsetSpec:
        """The last offset in remote storage."""
        return cls(LATEST_TIERED)

    @classmethod
    def earliest_pending_upload(cls) -> OffsetSpec:
        """The first offset that is not in remote storage yet."""
        return cls(EARLIEST_PENDING_UPLOAD)

    @classmethod
    def for_timestamp(cls, timestamp: int) -> OffsetSpec:
        """The first record that is not older than this time, in ms since the epoch."""
        if not isinstance(timestamp, int) or not 0 <= timestamp < 1 << 63:
            raise UsageError(f"timestamp={timestamp!r}: not allowed; allowed: ms since the epoch, 0 to 2^63 - 1")
        return cls(timestamp)


@dataclass(frozen=True, slots=True)
class ListOffsetsResultInfo:
    """An offset, with the timestamp and the leader epoch of its record. Offset and timestamp are -1 if there is no such record."""

    offset: int
    timestamp: int
    leader_epoch: int | None


class _ListOffsets:
    name = "list offsets"

    def __init__(self, client: Client, targets: Mapping[TopicPartition, int], is_committed: bool, timeout_ms: int) -> None:
        self._client = client
        self._targets = targets
        self._is_committed = is_committed
        self._timeout_ms = timeout_ms
        self.lookup: Lookup[TopicPartition] = Leaders(client, tolerates_unknown=False)
        self.versions: range | None = self._needed(targets)

    def _needed(self, keys: Iterable[TopicPartition]) -> range:
        first = max(_SINCE.get(self._targets[key], 1) for key in keys)
        return range(max(first, _FIRST_COMMITTED if self._is_committed else 1), ListOffsetsRequest.VERSIONS.stop)

    def build(self, keys: list[TopicPartition]) -> tuple[list[TopicPartition], Callable[[int], Message]]:
        self.versions = self._needed(keys)
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=one, timestamp=self._targets[TopicPartition(name, one)]) for one in numbers
                ],
            )
            for name, numbers in by_topic(keys).items()
        ]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=int(self._is_committed), topics=topics, timeout_ms=self._timeout_ms)
        return keys, lambda _: request

    def handle(self, broker: int, keys: list[TopicPartition], response: Message) -> Outcome[TopicPartition, ListOffsetsResultInfo]:
        assert isinstance(response, ListOffsetsResponse)
        outcome = Outcome[TopicPartition, ListOffsetsResultInfo]()
        for topic in response.topics:
            for one in topic.partitions:
                key, error = TopicPartition(topic.name, one.partition_index), error_of(one.error_code)
                if error is None:
                    epoch = one.leader_epoch if one.leader_epoch >= 0 else None
                    outcome.completed[key] = ListOffsetsResultInfo(one.offset, one.timestamp, epoch)
                elif error.name in _NO_LEADER or (not self._client.is_patient and by_name(error.name).reaction is Reaction.METADATA):
                    outcome.unmapped.append(key)
                    outcome.later[key] = error
                elif error.retriable:
                    outcome.later[key] = error
                else:
                    outcome.failed[key] = error
        _check_complete(self.name, keys, outcome)
        return outcome

    def unsupported(self, keys: list[TopicPartition], error: KafkaError) -> dict[TopicPartition, KafkaError]:
        """Kafka lets the other partitions succeed if a broker is only too old for the largest timestamp."""
        newest = [key for key in keys if self._targets[key] == MAX_TIMESTAMP]
        return dict.fromkeys(newest or keys, error)


def _check_complete(
    name: str, keys: Iterable[TopicPartition], outcome: Outcome[TopicPartition, ListOffsetsResultInfo] | Outcome[TopicPartition, int]
) -> None:
    """Fail the keys that a broker has not answered."""
    if not outcome.unmapped:
        known = {*outcome.completed, *outcome.failed, *outcome.later}
        outcome.failed |= {key: missing(name, f"{key.topic}-{key.partition}") for key in keys if key not in known}


def list_offsets(
    client: Client,
    topic_partition_offsets: ByPartition[OffsetSpec],
    *,
    isolation_level: IsolationLevel = "read_uncommitted",
    timeout: float | None = None,
) -> Steps[Results[TopicPartition, ListOffsetsResultInfo]]:
    """Return an offset of each partition. With `read_committed`, the end is the last stable offset."""
    if isolation_level not in ("read_uncommitted", "read_committed"):
        raise UsageError(f"isolation_level={isolation_level}: not allowed; allowed: read_uncommitted or read_committed")
    targets = {key: _target(spec) for key, spec in by_partition(topic_partition_offsets).items()}
    deadline = deadline_ms(client, timeout)
    if not targets:
        return Results({})
    timeout_ms = int(deadline - client.now_ms())
    handler = _ListOffsets(client, targets, isolation_level == "read_committed", timeout_ms)
    return (yield from keyed(client, handler, targets, deadline))


def _target(spec: object) -> int:
    if not isinstance(spec, OffsetSpec):
        raise UsageError(f"{spec!r} is not an offset; allowed: OffsetSpec, such as OffsetSpec.latest()")
    return spec.target


class _DeleteRecords:
    name = "delete records"
    versions: range | None = None

    def __init__(self, client: Client, offsets: Mapping[TopicPartition, int]) -> None:
        self._offsets = offsets
        self.lookup: Lookup[TopicPartition] = Leaders(client)

    def build(self, keys: list[TopicPartition]) -> tuple[list[TopicPartition], Callable[[int], Message]]:
        topics = [
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=one, offset=self._offsets[TopicPartition(name, one)]) for one in numbers
                ],
            )
            for name, numbers in by_topic(keys).items()
        ]
        return keys, lambda timeout_ms: DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)

    def handle(self, broker: int, keys: list[TopicPartition], response: Message) -> Outcome[TopicPartition, int]:
        assert isinstance(response, DeleteRecordsResponse)
        outcome = Outcome[TopicPartition, int]()
        for topic in response.topics:
            for one in topic.partitions:
                key, error = TopicPartition(topic.name, one.partition_index), error_of(one.error_code)
                if error is None:
                    outcome.completed[key] = one.low_watermark
                elif by_name(error.name).reaction is Reaction.METADATA:
                    outcome.unmapped.append(key)
                    outcome.later[key] = error
                elif error.retriable:
                    outcome.later[key] = error
                else:
                    outcome.failed[key] = error
        _check_complete(self.name, keys, outcome)
        return outcome

    def unsupported(self, keys: list[TopicPartition], error: KafkaError) -> dict[TopicPartition, KafkaError]:
        return dict.fromkeys(keys, error)


def delete_records(
    client: Client, records_to_delete: ByPartition[int], *, timeout: float | None = None
) -> Steps[Results[TopicPartition, int]]:
    """Delete all records before an offset of each partition; -1 stands for the high watermark. Returns the new first offsets."""
    deadline = deadline_ms(client, timeout)
    offsets = by_partition(records_to_delete)
    return (yield from keyed(client, _DeleteRecords(client, offsets), offsets, deadline))
