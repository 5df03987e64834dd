"""The partitions of which this broker has a replica, online or in a log directory that failed.

Source: Kafka's HostedPartition and ReplicaManager (getPartition, getPartitionOrException, getPartitionOrError, markPartitionOffline).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.broker.replicas.topic_stats import BrokerTopicStats
from kops.errors import ApiError, KopsError
from kops.storage.failures.load_errors import CorruptRecordError, InvalidRecordError, KafkaStorageError, OffsetOutOfRangeError

if TYPE_CHECKING:
    from kops.metadata.image.metadata_cache import MetadataCache
    from kops.records.log_offsets import TopicPartition
    from kops.replication.leading.partition import Partition

_BY_CLASS = (
    (KafkaStorageError, "KAFKA_STORAGE_ERROR"),
    (CorruptRecordError, "CORRUPT_MESSAGE"),
    (InvalidRecordError, "INVALID_RECORD"),
    (OffsetOutOfRangeError, "OFFSET_OUT_OF_RANGE"),
)


def error_name(error: KopsError) -> str:
    """The name of the error that a client gets (Errors.forException)."""
    if isinstance(error, ApiError):
        return error.name
    return next((name for kind, name in _BY_CLASS if isinstance(error, kind)), "UNKNOWN_SERVER_ERROR")


def name_of(key: TopicPartition) -> str:
    """A partition as Kafka's messages name it."""
    return f"{key.topic}-{key.partition}"


class HostedPartitions:
    """`online` are served. `offline` are not served until the next start; they keep the partition if it was known. `append_count` grows
    with every append to a partition led here, `stats` with the traffic.
    """

    __slots__ = ("_cache", "append_count", "offline", "online", "stats")

    def __init__(self, cache: MetadataCache) -> None:
        self.online: dict[TopicPartition, Partition] = {}
        self.offline: dict[TopicPartition, Partition | None] = {}
        self._cache = cache
        self.append_count = 0
        self.stats = BrokerTopicStats()

    def get_or_raise(self, key: TopicPartition) -> Partition:
        """Return the partition. Raises ApiError KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER (other brokers have it),
        UNKNOWN_TOPIC_OR_PARTITION."""
        partition = self.online.get(key)
        if partition is None:
            raise self.missing(key)
        return partition

    def missing(self, key: TopicPartition) -> ApiError:
        """Return the error for a partition that is not served."""
        if key in self.offline:
            return ApiError("KAFKA_STORAGE_ERROR", f"Partition {name_of(key)} is in an offline log directory")
        is_known = self._cache.partition(key.topic, key.partition) is not None
        reason = f"Error while fetching partition state for {name_of(key)}"
        return ApiError("NOT_LEADER_OR_FOLLOWER" if is_known else "UNKNOWN_TOPIC_OR_PARTITION", reason)

    def get_or_unknown(self, key: TopicPartition) -> Partition:
        """Like `get_or_raise`, but a partition that is not on this broker always gives UNKNOWN_TOPIC_OR_PARTITION."""
        partition = self.online.get(key)
        if partition is None:
            error = "KAFKA_STORAGE_ERROR" if key in self.offline else "UNKNOWN_TOPIC_OR_PARTITION"
            raise ApiError(error, f"Error while fetching partition state for {name_of(key)}")
        return partition

    def put(self, key: TopicPartition, partition: Partition) -> None:
        """Serve a partition."""
        self.offline.pop(key, None)
        self.online[key] = partition

    def mark_offline(self, key: TopicPartition) -> None:
        """Stop serving a partition: its log directory has failed, or it may be in a failed one."""
        partition = self.online.pop(key, None)
        self.offline[key] = partition
        if partition is not None:
            partition.mark_offline()

    def leaders(self) -> list[Partition]:
        """The partitions that this broker leads."""
        return [partition for partition in self.online.values() if partition.leader_log is not None]
