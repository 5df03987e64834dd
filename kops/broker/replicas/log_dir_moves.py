"""Serves AlterReplicaLogDirs and DescribeLogDirs: moves replicas to log directories, and reports where they are.

Source: Kafka's ReplicaManager (alterReplicaLogDirs, describeLogDirs, getLogEndOffsetLag; KIP-113, KIP-827, KIP-1066).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.broker.replicas.alter_log_dirs import initial_fetch_offset
from kops.broker.replicas.hosted_partitions import error_name, name_of
from kops.errors import ApiError, KopsError
from kops.replication.following.fetch_state import InitialFetchState
from kops.storage.manager.log_manager import key_of

if TYPE_CHECKING:
    from kops.broker.replicas.alter_log_dirs import LogDirCopies
    from kops.broker.replicas.hosted_partitions import HostedPartitions
    from kops.records.log_offsets import TopicPartition
    from kops.replication.leading.partition import Partition
    from kops.storage.manager.log_manager import LogManager
    from kops.storage.unified_log import UnifiedLog

_LONGEST_NAME: Final = 255
_FUTURE_SUFFIX_SIZE: Final = len("." + "0" * 32 + "-future")
NO_LAG: Final = -1


class ReplicaInDir(NamedTuple):
    """A replica in a log directory: its size in bytes, and the number of offsets it is behind (-1: unknown)."""

    key: TopicPartition
    size: int
    offset_lag: int
    is_future: bool


class LogDirDescription(NamedTuple):
    """A log directory: `error` is a name of Kafka's Errors. The disk's sizes are in bytes (-1: unknown)."""

    log_dir: str
    error: str = "NONE"
    replicas: tuple[ReplicaInDir, ...] = ()
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False


def disk_space(path: str) -> tuple[int, int]:
    """The size of a directory's file system, and the bytes available to a process. Raises OSError."""
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


class LogDirMoves:
    """The replicas in the log directories of one broker."""

    def __init__(
        self,
        hosted: HostedPartitions,
        logs: LogManager,
        copies: LogDirCopies,
        space: Callable[[str], tuple[int, int]] = disk_space,
    ) -> None:
        self._hosted = hosted
        self._logs = logs
        self._copies = copies
        self._space = space

    def alter(self, log_dirs: Mapping[TopicPartition, str]) -> dict[TopicPartition, str]:
        """Move replicas to these directories, in the background. Returns for each the name of an error, or NONE.

        The answer for a replica that is not here yet is REPLICA_NOT_AVAILABLE. It is created in its directory when it arrives.
        """
        return {key: self._alter_one(key, log_dir) for key, log_dir in log_dirs.items()}

    def _alter_one(self, key: TopicPartition, log_dir: str) -> str:
        try:
            self._check(key, log_dir)
            partition = self._hosted.online.get(key)
            if partition is not None and partition.future_log is not None and partition.future_log.parent_dir != log_dir:
                self._give_up(partition)
            self._logs.prefer_log_dir(key, log_dir)
            self._move(self._hosted.get_or_raise(key), log_dir)
        except KopsError as error:
            name = error_name(error)
            return "REPLICA_NOT_AVAILABLE" if name == "NOT_LEADER_OR_FOLLOWER" else name
        return "NONE"

    def _check(self, key: TopicPartition, log_dir: str) -> None:
        dirs = self._logs.dirs
        if len(name_of(key)) + _FUTURE_SUFFIX_SIZE > _LONGEST_NAME:
            raise ApiError("INVALID_TOPIC_EXCEPTION", "The topic name is too long.")
        if not dirs.is_online(log_dir):
            raise ApiError("KAFKA_STORAGE_ERROR", f"Log directory {log_dir} is offline")
        if log_dir in dirs.cordoned:
            raise ApiError("INVALID_REPLICA_ASSIGNMENT", f"Log directory {log_dir} is cordoned")
        if key in self._hosted.offline:
            raise ApiError("KAFKA_STORAGE_ERROR", f"Partition {name_of(key)} is offline")

    def _give_up(self, partition: Partition) -> None:
        """Cancel a copy into another directory that is in progress."""
        key = partition.topic_partition
        self._copies.remove([key])
        partition.future_log = None
        self._logs.async_delete(key, is_future=True)
        if self._logs.cleaner is not None:
            self._logs.cleaner.resume_cleaning([key])

    def _move(self, partition: Partition, log_dir: str) -> None:
        key = partition.topic_partition

        def open_log() -> UnifiedLog:
            return self._logs.get_or_create_log(key, is_future=True, topic_id=self._topic_id(key))

        if partition.maybe_create_future_log(log_dir, open_log):
            if self._logs.cleaner is not None:
                self._logs.cleaner.abort_and_pause_cleaning(key)
            offset = initial_fetch_offset(partition.future_local_log)
            self._copies.add({key: InitialFetchState(partition.topic_id, partition.leader_epoch, offset)})

    def _topic_id(self, key: TopicPartition) -> str | None:
        log = self._logs.get_log(key)
        return None if log is None else log.topic_id

    def describe(self, keys: Collection[TopicPartition] | None = None) -> list[LogDirDescription]:
        """Describe all log directories, with the replicas of these partitions (None: of all)."""
        by_dir: dict[str, list[UnifiedLog]] = {}
        for log in self._logs.all_logs:
            by_dir.setdefault(log.parent_dir, []).append(log)
        return [self._describe_one(path, by_dir.get(path, []), keys) for path in self._logs.dirs.paths]

    def _describe_one(self, path: str, logs: list[UnifiedLog], keys: Collection[TopicPartition] | None) -> LogDirDescription:
        dirs = self._logs.dirs
        if not dirs.is_online(path):
            return LogDirDescription(path, "KAFKA_STORAGE_ERROR")
        try:
            total_bytes, usable_bytes = self._space(path)
        except OSError:
            return LogDirDescription(path, "UNKNOWN_SERVER_ERROR")
        replicas = tuple(
            ReplicaInDir(key, log.size, self._lag(key, log), log.is_future)
            for key, log in ((key_of(log), log) for log in logs)
            if keys is None or key in keys
        )
        return LogDirDescription(path, "NONE", replicas, total_bytes, usable_bytes, path in dirs.cordoned)

    def _lag(self, key: TopicPartition, log: UnifiedLog) -> int:
        partition = self._hosted.online.get(key)
        current = None if partition is None else partition.log
        if current is None:
            return NO_LAG
        if log.is_future:
            return current.log_end_offset - log.log_end_offset
        return max(current.high_watermark - log.log_end_offset, 0)
