"""Reads the logs of this broker for share fetches.

Source: DelayedShareFetch (readFromLog, endOffsetMetadataForTopicPartition), ShareFetchUtils (offsetFor…, partition), and
ReplicaManager.readFromLog.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from kops.broker.replicas.hosted_partitions import error_name
from kops.coordinators.share.fetching.delayed import LogRead
from kops.coordinators.share.sessions.session import TopicIdPartition
from kops.errors import ApiError, KopsError
from kops.protocol.json_text import uuid_text
from kops.protocol.structure import Records
from kops.records.log_offsets import Isolation, LogOffsetMetadata, TopicPartition
from kops.replication.leading.fetch import FetchInfo
from kops.replication.quota import UnboundedQuota

if TYPE_CHECKING:
    from kops.broker.replicas.manager import ReplicaManager
    from kops.broker.replicas.reads import FetchPartitionData
    from kops.replication.leading.fetch import FetchParams
    from kops.replication.leading.partition import Partition
    from kops.storage.segment_files.file_records import LogView

_EARLIEST_TIMESTAMP: Final = -2
_LATEST_TIMESTAMP: Final = -1
_READ_UNCOMMITTED: Final = 0
_UNBOUNDED: Final = UnboundedQuota()


class ShareLogReader:
    """A LogReader with the parameters of one fetch (`kops.coordinators.share.fetching.delayed`)."""

    def __init__(self, replicas: ReplicaManager, params: FetchParams) -> None:
        self._replicas = replicas
        self._params = params

    def read(self, wanted: Mapping[TopicIdPartition, tuple[int, int]]) -> Mapping[TopicIdPartition, LogRead]:
        """See LogReader."""
        infos = [(topic_partition(part), FetchInfo(offset, 0, size, topic_id=part.topic_id)) for part, (offset, size) in wanted.items()]
        answer = self._replicas.read(self._params, infos, _UNBOUNDED, from_purgatory=True)
        return {part: _log_read(data) for part, (_, data) in zip(wanted, answer, strict=True)}

    def end(self, part: TopicIdPartition) -> LogOffsetMetadata | None:
        """See LogReader."""
        try:
            offsets = led_partition(self._replicas, part).fetch_offset_snapshot(None, fetch_only_from_leader=True)
        except KopsError as error:
            raise as_api_error(error) from error
        is_uncommitted = self._params.isolation is Isolation.HIGH_WATERMARK
        end = offsets.high_watermark if is_uncommitted else offsets.last_stable_offset
        return end if end.message_offset >= 0 else None

    def earliest_offset(self, part: TopicIdPartition, leader_epoch: int) -> int:
        """See LogReader."""
        return offset_for_timestamp(self._replicas, part, _EARLIEST_TIMESTAMP, leader_epoch)

    def slice(self, records: Records, position: int, size: int) -> Records:
        """See LogReader."""
        return cast("LogView", records).slice(position, size)


def topic_partition(part: TopicIdPartition) -> TopicPartition:
    """The partition by the topic's name, which must be known."""
    assert part.topic is not None, "the topic is not known"
    return TopicPartition(part.topic, part.partition)


def led_partition(replicas: ReplicaManager, part: TopicIdPartition) -> Partition:
    """Return a partition that this broker leads. Raises ApiError."""
    partition = replicas.get_partition_or_raise(topic_partition(part))
    if not partition.is_leader:
        raise ApiError("NOT_LEADER_OR_FOLLOWER")
    return partition


def offset_for_timestamp(replicas: ReplicaManager, part: TopicIdPartition, timestamp: int, leader_epoch: int) -> int:
    """Return the offset for a timestamp (or -1, -2) among readable records. Raises ApiError, OFFSET_NOT_AVAILABLE if there is none."""
    try:
        partition = replicas.get_partition_or_raise(topic_partition(part))
        found = partition.fetch_offset_for_timestamp(timestamp, _READ_UNCOMMITTED, leader_epoch, fetch_only_from_leader=True)
    except KopsError as error:
        raise as_api_error(error) from error
    if found.offset < 0:
        wanted = {_EARLIEST_TIMESTAMP: "earliest timestamp", _LATEST_TIMESTAMP: "latest timestamp"}.get(timestamp, f"timestamp {timestamp}")
        name = f"{uuid_text(part.topic_id)}:{part.topic}-{part.partition}"
        raise ApiError("OFFSET_NOT_AVAILABLE", f"Offset for {wanted} not found for topic partition: {name}")
    return found.offset


def as_api_error(error: KopsError) -> ApiError:
    """Convert an error into the one for a client."""
    return error if isinstance(error, ApiError) else ApiError(error_name(error), str(error))


def _log_read(data: FetchPartitionData) -> LogRead:
    if data.error != "NONE":
        return LogRead(ApiError(data.error))
    aborted: list[Any] = [] if data.aborted_transactions is None else data.aborted_transactions
    transactions = [(each.producer_id, each.first_offset) for each in aborted]
    if data.records is None:
        return LogRead(start=data.start, aborted=transactions)
    try:
        batches = list(data.records.batches())
    except KopsError as error:
        return LogRead(as_api_error(error))
    return LogRead(None, batches, data.records, data.start, transactions)
