"""All replicas of one broker: requests of clients and followers, changes of the metadata, and failed disks.

Source: Kafka's ReplicaManager. This module connects the parts: `appends` and `reads` serve requests, `delta` applies the metadata,
`fetcher` follows other brokers, `alter_log_dirs` and `log_dir_moves` move replicas between directories. One loop calls it, so there is no
lock; time-outs run on the loop's monotonic clock.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from kops.broker.replicas.alter_log_dirs import LogDirCopies
from kops.broker.replicas.appends import ReplicaAppends
from kops.broker.replicas.delta import ReplicaDelta
from kops.broker.replicas.fetcher import FollowerFetchers, LeaderConnection
from kops.broker.replicas.hosted_partitions import HostedPartitions
from kops.broker.replicas.log_dir_moves import LogDirMoves, disk_space
from kops.broker.replicas.purgatory_timer import PurgatoryTimer
from kops.broker.replicas.reads import ReplicaReads
from kops.errors import UsageError
from kops.replication.following.fetcher import Fetcher
from kops.replication.following.followers import FollowerReplicas
from kops.replication.following.leader_endpoint import RemoteLeader
from kops.replication.leading.partition import Surroundings
from kops.replication.leading.selector import RackAwareReplicaSelector
from kops.replication.quota import ReplicationQuotaManager
from kops.replication.waiting.delayed import DelayedDeleteRecords, DelayedFetch, DelayedProduce, Purgatories
from kops.replication.waiting.purgatory import DelayedOperationPurgatory
from kops.storage.formats.kafka_uuid import uuid_bytes
from kops.storage.manager.live_log_dirs import LogDirsFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kops.broker.network.events.loop import Loop
    from kops.broker.network.peer import PeerSettings
    from kops.broker.replicas.settings import ReplicaSettings
    from kops.metadata.image.metadata_cache import MetadataCache
    from kops.metadata.image.metadata_image import MetadataImage
    from kops.metadata.image.parts.topics import TopicsDelta
    from kops.records.log_offsets import TopicPartition
    from kops.replication.following.fetcher_manager import BrokerEndPoint
    from kops.replication.leading.partition import AlterPartitionQueue, Partition
    from kops.replication.leading.selector import ReplicaSelector
    from kops.storage.manager.log_manager import LogManager

log = logging.getLogger(__name__)

_SELECTORS: Final[dict[str, type[RackAwareReplicaSelector] | None]] = {
    "org.apache.kafka.common.replica.LeaderSelector": None,
    "org.apache.kafka.common.replica.RackAwareReplicaSelector": RackAwareReplicaSelector,
}


class Assignments(Protocol):
    """Reports to the controller in which directory a replica is (`kops.broker.controller_link.assignments`)."""

    def assign(self, topic_id: bytes, partition: int, directory_id: bytes, on_success: Callable[[], object]) -> None: ...


class _Brokers:
    """The state of other brokers, for the partitions."""

    __slots__ = ("alive_broker_epoch", "is_fenced", "is_shutting_down")

    def __init__(self, cache: MetadataCache) -> None:
        self.alive_broker_epoch = cache.alive_broker_epoch
        self.is_fenced = cache.is_broker_fenced
        self.is_shutting_down = cache.is_broker_shutting_down


class ReplicaManager:
    """The replicas of one broker.

    `connect` makes a fetcher's connection to a leader (`fetcher.connect_by`). `on_directory_failed` gets the id of a failed directory.
    `halt` gets the reason why this broker can't continue: no log directory is left, or the one with the metadata log failed.
    """

    def __init__(
        self,
        loop: Loop,
        settings: ReplicaSettings,
        logs: LogManager,
        cache: MetadataCache,
        *,
        connect: Callable[[BrokerEndPoint, PeerSettings], LeaderConnection],
        alter_partition: AlterPartitionQueue,
        broker_epoch: Callable[[], int],
        assignments: Assignments,
        on_directory_failed: Callable[[bytes], object],
        halt: Callable[[str], object],
        space: Callable[[str], tuple[int, int]] = disk_space,
    ) -> None:
        self.settings = settings
        self.logs = logs
        self.leader_quota, self.follower_quota = (
            ReplicationQuotaManager(
                loop.now_ms, sample_count=settings.replication_quota_window_num, window_ms=settings.replication_quota_window_ms
            )
            for _ in range(2)
        )
        self.alter_log_dirs_quota = ReplicationQuotaManager(
            loop.now_ms,
            sample_count=settings.alter_log_dirs_replication_quota_window_num,
            window_ms=settings.alter_log_dirs_replication_quota_window_ms,
        )
        self._assignments = assignments
        self._on_directory_failed = on_directory_failed
        self._halt = halt
        self.timer = PurgatoryTimer(loop)
        produce: DelayedOperationPurgatory[DelayedProduce] = DelayedOperationPurgatory(self.timer)
        fetch: DelayedOperationPurgatory[DelayedFetch] = DelayedOperationPurgatory(self.timer)
        delete_records: DelayedOperationPurgatory[DelayedDeleteRecords] = DelayedOperationPurgatory(self.timer)
        self.purgatories = purgatories = Purgatories(produce, fetch, delete_records)
        self.hosted = hosted = HostedPartitions(cache)
        self.stats = hosted.stats
        brokers, max_lag_ms = _Brokers(cache), settings.replica_lag_time_max_ms
        around = Surroundings(
            settings.node_id, broker_epoch, loop.now_ms, brokers, logs, alter_partition, purgatories, max_lag_ms, self._on_log_start
        )
        reads = ReplicaReads(hosted, purgatories, cache, loop.now_ms, selector_of(settings.replica_selector_class))
        appends = ReplicaAppends(hosted, purgatories, loop.call_soon)
        self.copies = LogDirCopies(loop, settings, hosted, reads, self.alter_log_dirs_quota, self)
        self._followers = followers = FollowerReplicas(hosted.get_or_raise, self.follower_quota, self.copies.mark_for_truncation)
        self.fetchers = FollowerFetchers(
            loop, settings, broker_epoch, followers, self.follower_quota, connect, purgatories.complete_fetches, Fetcher, RemoteLeader
        )
        moves = LogDirMoves(hosted, logs, self.copies, space)
        listener = settings.inter_broker_listener_name
        self._delta = ReplicaDelta(around, listener, hosted, logs, purgatories, self.fetchers, self.copies, self)
        # Requests go straight to the part that serves them.
        self.append_records = appends.append_records
        self.delete_records = appends.delete_records
        self.begin_fetch = reads.begin
        self.fetch = reads.fetch
        self.read = reads.read
        self.list_offsets = reads.list_offsets
        self.end_offset_for_epoch = reads.end_offset_for_epoch
        self.describe_producers = reads.describe_producers
        self.alter_replica_log_dirs = moves.alter
        self.describe_log_dirs = moves.describe
        self.get_partition_or_raise = hosted.get_or_raise

    def _on_log_start(self, key: TopicPartition) -> None:
        self.fetchers.note_change(key)

    # metadata ---------------------------------------------------------------------------------------------------------------------

    def apply_delta(self, delta: TopicsDelta, image: MetadataImage) -> None:
        """Lead, follow, stop and delete partitions as a change of the metadata says. `image` is the metadata after it."""
        self._delta.apply(delta, image)

    def update_topic_config(self, topic: str) -> None:
        """Apply a topic's changed settings. Raises UsageError for a value that is not allowed."""
        self.logs.update_topic_config(topic)

    def handle_assignment(self, topic_id: bytes, key: TopicPartition, log_dir: str, reason: str, on_accepted: Callable[[], None]) -> None:
        """Report to the controller that a replica is in `log_dir`. Calls `on_accepted` when it has confirmed."""
        directory_id = self.logs.dirs.ids.get(log_dir)
        if directory_id is not None:
            log.info("Assigning %s-%d to directory %s: %s", key.topic, key.partition, directory_id, reason)
            self._assignments.assign(topic_id, key.partition, uuid_bytes(directory_id), on_accepted)

    # tasks ------------------------------------------------------------------------------------------------------------------------

    def maybe_shrink_isrs(self) -> None:
        """Remove replicas that have lagged too long from the ISRs. Call it twice in `replica.lag.time.max.ms`."""
        for partition in list(self.hosted.online.values()):
            partition.maybe_shrink_isr()

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks of all logs."""
        self.logs.checkpoint_high_watermarks()

    # failing directories ----------------------------------------------------------------------------------------------------------

    def handle_log_dir_failures(self) -> None:
        """Handle the failures in the channel. Called on the loop when there is a failure."""
        while (log_dir := self.logs.failures.take_next()) is not None:
            self.on_log_dir_failure(log_dir)

    def on_log_dir_failure(self, log_dir: str) -> None:
        """Stop serving the replicas of a directory and tell the controller, which elects other leaders."""
        dirs = self.logs.dirs
        if log_dir not in dirs.live:
            return
        directory_id = dirs.ids.get(log_dir)
        failure = self.logs.failures.offline.get(log_dir)
        if failure is not None:  # what failed, and why: an operator needs it
            log.error("%s: %s", failure.message, failure.error)
        log.warning("Stopping serving replicas in dir %s because the log directory has failed.", log_dir)
        online = self.hosted.online.items()
        failed = [key for key, partition in online if partition.log is not None and partition.log.parent_dir == log_dir]
        copied = {key: partition for key, partition in online if _has_future_in(partition, log_dir)}
        self.fetchers.remove(failed)
        self.copies.remove([*failed, *copied])
        for partition in copied.values():
            partition.future_log = None
        for key in failed:
            self.hosted.mark_offline(key)
            self.purgatories.check_and_complete_all(key)
        try:
            self.logs.handle_log_dir_failure(log_dir)
        except LogDirsFailedError as error:
            self._halt(str(error))
            return
        if log_dir == self.settings.metadata_log_dir:
            self._halt(f"Shutdown broker because the metadata log dir {log_dir} has failed")
        elif directory_id is None:
            self._halt(f"Unable to propagate directory failure because directory {log_dir} has no UUID")
        else:
            self._on_directory_failed(uuid_bytes(directory_id))

    # the end ----------------------------------------------------------------------------------------------------------------------

    def begin_controlled_shutdown(self) -> None:
        """From now on, do not follow partitions that have no leader or whose replica here is out of sync."""
        self._delta.is_shutting_down = True

    def shut_down(self) -> None:
        """`close`, and write the high watermarks."""
        self.close()
        self.checkpoint_high_watermarks()

    def close(self) -> None:
        """Stop fetching and drop waiting requests. A second call does nothing."""
        self.fetchers.close()
        self.copies.close()
        self.timer.close()

    # facts ------------------------------------------------------------------------------------------------------------------------

    @property
    def partition_count(self) -> int:
        """The number of partitions with a replica here, including offline ones."""
        return len(self.hosted.online) + len(self.hosted.offline)

    @property
    def offline_count(self) -> int:
        """The number of replicas in failed directories."""
        return len(self.hosted.offline)

    @property
    def leader_count(self) -> int:
        """The number of partitions led here."""
        return sum(1 for _ in self.hosted.leaders())

    def topic_metrics(self) -> Iterator[dict[str, float]]:
        """The counters of the topics, by Kafka's names (`kops.broker.replicas.topic_stats`)."""
        return self.stats.metrics(self._followers.bytes_in)

    def count_leaders(self, holds: Callable[[Partition], bool]) -> int:
        """Return how many partitions led here have a property (`is_under_replicated`, `is_under_min_isr`, `is_at_min_isr` …)."""
        return sum(1 for partition in self.hosted.leaders() if holds(partition))


def selector_of(class_name: str | None) -> ReplicaSelector | None:
    """Return the selector that `replica.selector.class` names; None if consumers read from the leader. Raises UsageError for a class that
    is not Kafka's."""
    if not class_name:
        return None
    if class_name not in _SELECTORS:
        raise UsageError(f"replica.selector.class={class_name}: allowed: {', '.join(_SELECTORS)}")
    selector = _SELECTORS[class_name]
    return None if selector is None else selector()


def _has_future_in(partition: Partition, log_dir: str) -> bool:
    return partition.future_log is not None and partition.future_log.parent_dir == log_dir
