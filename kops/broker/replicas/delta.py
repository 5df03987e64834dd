"""Applies changes of the metadata to the replicas of this broker: lead, follow, stop, delete.

Source: Kafka's ReplicaManager (applyDelta, applyLocalLeadersDelta, applyLocalFollowersDelta, stopPartitions, getOrCreatePartition,
maybeAddLogDirFetchers, maybeUpdateTopicAssignment) and Partition.createLogInAssignedDirectoryId.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kops.broker.replicas.alter_log_dirs import initial_fetch_offset
from kops.broker.replicas.hosted_partitions import name_of
from kops.errors import KopsError
from kops.metadata.directory_id import UNASSIGNED
from kops.metadata.image.local_changes import local_changes
from kops.metadata.partition_registration import NO_LEADER
from kops.protocol.json_text import uuid_text
from kops.records.log_offsets import TopicPartition
from kops.replication.following.fetch_state import InitialFetchState
from kops.replication.following.fetcher_manager import BrokerEndPoint
from kops.replication.leading.partition import Partition
from kops.storage.failures.load_errors import LoadError
from kops.storage.formats.kafka_uuid import uuid_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kops.broker.replicas.alter_log_dirs import LogDirCopies
    from kops.broker.replicas.fetcher import FollowerFetchers
    from kops.broker.replicas.hosted_partitions import HostedPartitions
    from kops.metadata.image.local_changes import LocalPartition, LocalReplicaChanges
    from kops.metadata.image.metadata_image import MetadataImage
    from kops.metadata.image.parts.topics import TopicsDelta
    from kops.replication.following.followers import DirectoryEvents
    from kops.replication.leading.partition import Surroundings
    from kops.replication.log import ReplicaLog
    from kops.replication.waiting.delayed import Purgatories
    from kops.storage.manager.log_manager import LogManager

log = logging.getLogger(__name__)


class ReplicaDelta:
    """Applies deltas. `is_shutting_down` is whether the controlled shutdown has begun."""

    def __init__(
        self,
        around: Surroundings,
        listener: str,
        hosted: HostedPartitions,
        logs: LogManager,
        purgatories: Purgatories,
        fetchers: FollowerFetchers,
        copies: LogDirCopies,
        directories: DirectoryEvents,
    ) -> None:
        self.is_shutting_down = False
        self._around = around
        self._broker_id = around.broker_id
        self._listener = listener
        self._hosted = hosted
        self._logs = logs
        self._purgatories = purgatories
        self._fetchers = fetchers
        self._copies = copies
        self._directories = directories

    def apply(self, delta: TopicsDelta, image: MetadataImage) -> None:
        """Apply a change of topics. `image` is the metadata after it."""
        changes = local_changes(delta, self._broker_id)
        if changes.deletes:
            self._delete([TopicPartition(*key) for key in changes.deletes])
        if changes.leaders or changes.followers:
            assigned = {TopicPartition(topic, number): directory for (_, topic, number), directory in changes.directory_ids.items()}
            changed = self._lead(changes, assigned) + self._follow(changes, image, assigned)
            self._resume_copies(changed)
            self._fetchers.stop_idle()
            self._copies.stop_idle()
        if image.features.metadata_version is not None and image.features.metadata_version.has_directory_assignment:
            for (topic_id, topic, number), directory in changes.directory_ids.items():
                self._report_directory(topic_id, TopicPartition(topic, number), directory)

    # leading and following --------------------------------------------------------------------------------------------------------

    def _lead(self, changes: LocalReplicaChanges, assigned: Mapping[TopicPartition, bytes]) -> list[Partition]:
        leaders = {TopicPartition(*key): local for key, local in changes.leaders.items()}
        if leaders:
            self._fetchers.remove(leaders)
        changed = []
        for key, local in leaders.items():
            found = self._get_or_create(key, local.topic_id)
            if found is None:
                continue
            partition, is_new = found
            try:
                partition.make_leader(local.registration, self._opening(partition, is_new, assigned.get(key)))
            except KopsError as error:
                self._failed(key, error)
            else:
                changed.append(partition)
        return changed

    def _follow(self, changes: LocalReplicaChanges, image: MetadataImage, assigned: Mapping[TopicPartition, bytes]) -> list[Partition]:
        changed: list[Partition] = []
        to_start: dict[TopicPartition, Partition] = {}
        to_stop: list[TopicPartition] = []
        for (topic, number), local in changes.followers.items():
            key = TopicPartition(topic, number)
            found = self._get_or_create(key, local.topic_id)
            if found is None:
                continue
            partition, is_new = found
            try:
                # Do this also without a leader: this replica must stop leading, and its high watermark must be in the checkpoint
                # (KAFKA-1647).
                is_new_epoch = partition.make_follower(local.registration, self._opening(partition, is_new, assigned.get(key)))
            except KopsError as error:
                self._fetchers.failed.add(key)
                self._failed(key, error)
                continue
            changed.append(partition)
            if self.is_shutting_down and self._is_left_alone(local):
                to_stop.append(key)
            elif is_new_epoch:
                partition.tell_following()
                to_start[key] = partition
        self._start_fetching(to_start, image)
        if to_stop:
            self._stop(to_stop)
        return changed

    def _is_left_alone(self, local: LocalPartition) -> bool:
        """Whether a replica of a broker that shuts down need not be followed: it has no leader, or is out of sync."""
        return local.registration.leader == NO_LEADER or self._broker_id not in local.registration.isr

    def _start_fetching(self, partitions: Mapping[TopicPartition, Partition], image: MetadataImage) -> None:
        if not partitions:
            return
        # Read the fetch positions only when no fetcher moves them any more.
        self._fetchers.remove(partitions)
        wanted: dict[TopicPartition, tuple[BrokerEndPoint, InitialFetchState]] = {}
        for key, partition in partitions.items():
            leader = self._endpoint(partition.leader_id, image)
            if leader is None:
                log.debug("Unable to start fetching %s from leader %s because it is not alive.", name_of(key), partition.leader_id)
                continue
            offset = initial_fetch_offset(partition.local_log)
            wanted[key] = (leader, InitialFetchState(partition.topic_id, partition.leader_epoch, offset))
        self._fetchers.add(wanted)
        for key in partitions:
            self._purgatories.check_and_complete_all(key)

    def _endpoint(self, broker_id: int | None, image: MetadataImage) -> BrokerEndPoint | None:
        broker = None if broker_id is None else image.cluster.brokers.get(broker_id)
        endpoint = None if broker is None else broker.listeners.get(self._listener)
        return None if broker is None or endpoint is None else BrokerEndPoint(broker.id, endpoint.host, endpoint.port)

    def _get_or_create(self, key: TopicPartition, topic_id: bytes) -> tuple[Partition, bool] | None:
        """The partition, and whether it is new. None if it is in a failed directory, or belongs to a topic with another id.

        In the latter case Kafka throws an exception. That ends this delta, also for all later partitions, and Kafka continues with the next
        delta.
        """
        hosted = self._hosted
        partition = hosted.online.get(key)
        if partition is not None:
            if partition.topic_id != topic_id:
                there, expected = uuid_text(partition.topic_id), uuid_text(topic_id)
                log.error("Topic %s exists, but its ID is %s, not %s as expected", name_of(key), there, expected)
                return None
            return partition, False
        offline = hosted.offline.get(key)
        if offline is not None and offline.topic_id == topic_id:
            log.warning("Unable to bring up %s because it resides in an offline log directory.", name_of(key))
            return None
        partition = Partition(key, topic_id, self._around)
        hosted.put(key, partition)
        return partition, True

    def _opening(self, partition: Partition, is_new: bool, directory: bytes | None) -> Callable[[], ReplicaLog | None]:
        """Return a function that finds the log, or creates it in `directory` (None: the metadata names no directory)."""

        def open_log() -> ReplicaLog | None:
            dirs = self._logs.dirs
            directory_id = None if directory is None else uuid_text(directory)
            if directory_id is not None and directory != UNASSIGNED and dirs.offline and dirs.path_of(directory_id) is None:
                log.warning("Skipping creation of log because it may exist in an offline log directory: %s", partition)
                return None
            topic_id = uuid_text(partition.topic_id)
            opened = self._logs.get_or_create_log(partition.topic_partition, is_new=is_new, topic_id=topic_id, directory_id=directory_id)
            if opened.topic_id is None:
                opened.assign_topic_id(topic_id)
            return opened

        return open_log

    def _failed(self, key: TopicPartition, error: KopsError) -> None:
        log.error("Skipped the state change of %s: %s", name_of(key), error)
        if isinstance(error, LoadError) and error.kind == "log-dir-offline":
            self._hosted.mark_offline(key)

    # stopping and deleting --------------------------------------------------------------------------------------------------------

    def _stop(self, keys: Iterable[TopicPartition]) -> None:
        """Stop fetching these, and check the requests that wait for them."""
        stopped = list(keys)
        self._fetchers.remove(stopped)
        self._copies.remove(stopped)
        for key in stopped:
            self._purgatories.check_and_complete_all(key)

    def _delete(self, keys: list[TopicPartition]) -> None:
        # Fetchers look up their partitions, so they are stopped first.
        self._fetchers.remove(keys)
        self._copies.remove(keys)
        for key in keys:
            partition = self._hosted.online.pop(key, None)
            if partition is not None:
                partition.delete()
            self._purgatories.check_and_complete_all(key)
        left = {key.topic for key in self._hosted.online}
        for topic in {key.topic for key in keys} - left:
            self._hosted.stats.forget(topic)
        self._logs.async_delete_all(keys, lambda key, error: log.error("Unable to delete replica %s: %s", name_of(key), error))

    # directories ------------------------------------------------------------------------------------------------------------------

    def _resume_copies(self, partitions: Iterable[Partition]) -> None:
        """Continue copies that began before a restart of the broker, or in an earlier leader epoch."""
        wanted: dict[TopicPartition, InitialFetchState] = {}
        for partition in partitions:
            key = partition.topic_partition
            future = self._logs.get_log(key, is_future=True)
            if future is None or partition.log is None:
                continue
            if partition.maybe_create_future_log(future.parent_dir, lambda future=future: future) and self._logs.cleaner is not None:  # type: ignore[misc]
                self._logs.cleaner.abort_and_pause_cleaning(key)
            wanted[key] = InitialFetchState(partition.topic_id, partition.leader_epoch, initial_fetch_offset(future))
        if wanted:
            self._copies.add(wanted)

    def _report_directory(self, topic_id: bytes, key: TopicPartition, assigned: bytes) -> None:
        """Report to the controller the directory in which a replica really is."""
        local_log = self._logs.get_log(key)
        actual = None if local_log is None else self._logs.dirs.ids.get(local_log.parent_dir)
        if local_log is not None and actual is not None and uuid_bytes(actual) != assigned:
            self._directories.handle_assignment(topic_id, key, local_log.parent_dir, "Applying metadata delta", _nothing)


def _nothing() -> None:
    """Nothing depends on whether the controller accepts the report."""
