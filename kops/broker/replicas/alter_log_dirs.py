"""Moves replicas between log directories of this broker: fills copies from their logs, which they replace at the end.

Source: Kafka's ReplicaAlterLogDirsManager, ReplicaAlterLogDirsThread, LocalLeaderEndPoint (KIP-113, KIP-858). Kafka's thread polls its own
broker without a pause. Here a copy that has reached the end of its log checks again a little later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.broker.replicas.hosted_partitions import error_name
from kops.errors import KopsError
from kops.protocol.errors import by_name
from kops.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from kops.protocol.messages.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse
from kops.protocol.messages.offset_for_leader_epoch_response import EpochEndOffset as AnsweredEpoch
from kops.protocol.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult
from kops.records.log_offsets import Isolation
from kops.replication.following.fetcher import EpochsSent, Fetcher, FetchSent
from kops.replication.following.fetcher_manager import BrokerEndPoint, FetcherId, FetcherManager
from kops.replication.following.followers import FutureReplicas
from kops.replication.following.leader_endpoint import FetcherSettings, LocalLeader
from kops.replication.leading.fetch import FUTURE_LOCAL_REPLICA_ID, FetchParams
from kops.replication.leading.fetch_session import records_size
from kops.replication.log import EARLIEST_TIMESTAMP
from kops.replication.quota import UnboundedQuota

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kops.broker.network.events.loop import Loop, Timer
    from kops.broker.replicas.hosted_partitions import HostedPartitions
    from kops.broker.replicas.reads import ReplicaReads
    from kops.broker.replicas.settings import ReplicaSettings
    from kops.protocol.declaration import Message
    from kops.records.log_offsets import TopicPartition
    from kops.replication.following.fetch_state import InitialFetchState
    from kops.replication.following.fetcher import OffsetsSent, Sent
    from kops.replication.following.followers import DirectoryEvents
    from kops.replication.log import ReplicaLog
    from kops.replication.quota import ReplicaQuota

CAUGHT_UP_PAUSE_MS: Final = 100
_ANY_VERSION: Final = 0


def initial_fetch_offset(log: ReplicaLog) -> int:
    """The offset from which to fill a log: its end, because fetches report where it diverges (KIP-595), or without epochs its high
    watermark.

    Kafka also cuts copies to their high watermark, because its broker does not report to itself where logs diverge.
    """
    return log.high_watermark if log.latest_epoch is None else log.log_end_offset


class CopyTask:
    """One fetcher of copies. It reads from this broker, with one request in each turn of the loop."""

    __slots__ = ("_closed", "_is_scheduled", "_loop", "_serve", "_timer", "fetcher")

    def __init__(self, loop: Loop, fetcher: Fetcher, serve: Callable[[Sent], tuple[Message, int]]) -> None:
        self.fetcher = fetcher
        self._loop = loop
        self._serve = serve
        self._timer: Timer | None = None
        self._closed = self._is_scheduled = False

    def wake(self) -> None:
        """Check for work now, without waiting for the next check."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._step)

    def close(self) -> None:
        """Stop copying."""
        self._closed = True
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _step(self) -> None:
        self._is_scheduled = False
        if self._closed:
            return
        self._stop_timer()
        fetcher = self.fetcher
        sent = fetcher.next_request()
        if sent is None:
            due_ms = fetcher.next_due_ms
            if due_ms is not None:
                self._timer = self._loop.call_later(due_ms - self._loop.monotonic_ms(), self.wake)
            return
        response, size = self._serve(sent)
        fetcher.on_response(sent, response, _ANY_VERSION)
        if size or not isinstance(sent, FetchSent):
            self.wake()
        elif fetcher.states:
            self._timer = self._loop.call_later(CAUGHT_UP_PAUSE_MS, self.wake)


class LogDirCopies:
    """All copies into other log directories."""

    def __init__(
        self,
        loop: Loop,
        settings: ReplicaSettings,
        hosted: HostedPartitions,
        reads: ReplicaReads,
        quota: ReplicaQuota,
        directories: DirectoryEvents,
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._hosted = hosted
        self._reads = reads
        self._quota = quota
        self._directories = directories
        self._unbounded = UnboundedQuota()
        self._tasks: dict[FetcherId, CopyTask] = {}
        self.replicas = FutureReplicas(hosted.get_or_raise, quota, self, self._promoted)
        self._fetcher_settings = FetcherSettings(
            settings.node_id,
            lambda: -1,
            response_max_bytes=settings.replica_fetch_response_max_bytes,
            max_bytes=settings.replica_fetch_max_bytes,
            backoff_ms=settings.replica_fetch_backoff_ms,
        )
        self._manager = FetcherManager(settings.num_replica_alter_log_dirs_threads, self._create, self._stop)

    @property
    def failed(self) -> set[TopicPartition]:
        """Copies that failed."""
        return self._manager.failed

    @property
    def keys(self) -> list[TopicPartition]:
        """The partitions being copied."""
        return [key for fetcher in self._manager.fetchers.values() for key in fetcher.states]

    def add(self, partitions: Mapping[TopicPartition, InitialFetchState]) -> None:
        """Copy these, except those whose copy has replaced the log meanwhile."""
        here = BrokerEndPoint(self._settings.node_id, "localhost", -1)
        wanted = {}
        for key, initial in partitions.items():
            if self._hosted.get_or_raise(key).future_log is not None:
                self.replicas.begin(key)
                wanted[key] = (here, initial)
        if wanted:
            self._manager.add(wanted)
            self.wake()

    def remove(self, keys: Iterable[TopicPartition]) -> None:
        """Stop copying these. If the controller may know the new directory, report the old one to it."""
        removed = self._manager.remove(keys)
        for key, state in removed.items():
            self.replicas.cancel(key, state.topic_id)

    def mark_for_truncation(self, key: TopicPartition, offset: int) -> None:
        """Truncate the copy of a log that was truncated."""
        self._manager.mark_for_truncation(self._settings.node_id, key, offset)
        self.wake()

    def resize(self, fetcher_count: int) -> None:
        """Apply a changed `num.replica.alter.log.dirs.threads`."""
        self._manager.resize(fetcher_count)
        self.wake()

    def stop_idle(self) -> None:
        """End the fetchers without copies."""
        self._manager.stop_idle()

    def close(self) -> None:
        """Stop all fetchers."""
        self._manager.close()

    def wake(self) -> None:
        """Let all fetchers check for work."""
        for task in self._tasks.values():
            task.wake()

    def handle_assignment(self, topic_id: bytes, key: TopicPartition, log_dir: str, reason: str, on_accepted: Callable[[], None]) -> None:
        """Report the directory of a replica to the controller, and continue with the replica when it is confirmed."""

        def accepted() -> None:
            on_accepted()
            self.wake()

        self._directories.handle_assignment(topic_id, key, log_dir, reason, accepted)

    def _promoted(self, key: TopicPartition) -> None:
        self._manager.remove([key])

    def _create(self, fetcher_id: FetcherId, leader: BrokerEndPoint) -> Fetcher:
        endpoint = LocalLeader(self._fetcher_settings, self._quota)
        backoff_ms = self._settings.replica_fetch_backoff_ms
        fetcher = Fetcher(endpoint, self.replicas, lambda: int(self._loop.monotonic_ms()), self._manager.failed, backoff_ms=backoff_ms)
        self._tasks[fetcher_id] = CopyTask(self._loop, fetcher, self._serve)
        return fetcher

    def _stop(self, fetcher_id: FetcherId, fetcher: Fetcher) -> None:
        self._tasks.pop(fetcher_id).close()

    # answers as from a leader -----------------------------------------------------------------------------------------------------

    def _serve(self, sent: Sent) -> tuple[Message, int]:
        if isinstance(sent, FetchSent):
            return self._fetch(sent)
        return (self._epochs(sent) if isinstance(sent, EpochsSent) else self._offsets(sent)), 0

    def _fetch(self, sent: FetchSent) -> tuple[FetchResponse, int]:
        params = FetchParams(FUTURE_LOCAL_REPLICA_ID, -1, 0, 0, self._settings.replica_fetch_response_max_bytes, Isolation.LOG_END)
        response, size = FetchResponse(), 0
        for key, data in self._reads.read(params, list(sent.asked.items()), self._unbounded):
            row = PartitionData(
                key.partition, by_name(data.error).code, data.high_watermark, data.last_stable_offset, data.log_start_offset
            )
            row.records = data.records
            if data.diverging_epoch is not None:
                row.diverging_epoch.epoch, row.diverging_epoch.end_offset, _ = data.diverging_epoch
            response.responses.append(FetchableTopicResponse(topic=key.topic, partitions=[row]))
            # After a copy was truncated there is also more to do.
            size += records_size(row) or (data.diverging_epoch is not None)
        return response, size

    def _epochs(self, sent: EpochsSent) -> OffsetForLeaderEpochResponse:
        topics = []
        for key, (current_leader_epoch, epoch) in sent.asked.items():
            end = self._reads.end_offset_for_epoch(key, current_leader_epoch, epoch, fetch_only_from_leader=False)
            row = AnsweredEpoch(by_name(end.error).code, key.partition, end.leader_epoch, end.end_offset)
            topics.append(OffsetForLeaderTopicResult(topic=key.topic, partitions=[row]))
        return OffsetForLeaderEpochResponse(topics=topics)

    def _offsets(self, sent: OffsetsSent) -> ListOffsetsResponse:
        topics = []
        for key, (_, timestamp) in sent.asked.items():
            row = ListOffsetsPartitionResponse(partition_index=key.partition)
            try:
                log = self._hosted.get_or_raise(key).local_log
                row.offset = log.log_start_offset if timestamp == EARLIEST_TIMESTAMP else log.log_end_offset
            except KopsError as error:
                row.error_code = by_name(error_name(error)).code
            topics.append(ListOffsetsTopicResponse(name=key.topic, partitions=[row]))
        return ListOffsetsResponse(topics=topics)
