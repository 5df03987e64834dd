"""Reads of the partitions of this broker: fetches of followers and consumers, offsets, ends of epochs, producers.

Source: Kafka's ReplicaManager (fetchMessages, readFromLog, findPreferredReadReplica, shouldLeaderThrottle, fetchOffsetForTimestamp,
lastOffsetForLeaderEpoch, activeProducerState) and FetchPartitionData. Errors of the storage become ApiErrors.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, cast

from mypy_extensions import mypyc_attr

from kops.broker.replicas.hosted_partitions import error_name, name_of
from kops.errors import ApiError, KopsError
from kops.protocol.declaration import ZERO_UUID
from kops.records.log_offsets import UNKNOWN_OFFSET_METADATA, Isolation, LogOffsetMetadata
from kops.replication.leading.fetch import EpochEndOffset
from kops.replication.leading.fetch_session import Rest
from kops.replication.leading.replica import BYPASS_BROKER_EPOCH
from kops.replication.leading.selector import find_preferred_read_replica
from kops.replication.waiting.delayed import AwaitedFetch, DelayedFetch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

    from kops.broker.replicas.hosted_partitions import HostedPartitions
    from kops.metadata.image.metadata_cache import MetadataCache
    from kops.records.log_offsets import TopicPartition
    from kops.replication.leading.fetch import ClientMetadata, FetchInfo, FetchParams, LogRead
    from kops.replication.leading.fetch_session import FetchSession
    from kops.replication.leading.partition import Partition
    from kops.replication.leading.partition_reads import OffsetFound
    from kops.replication.leading.selector import ReplicaSelector
    from kops.replication.quota import ReplicaQuota
    from kops.replication.waiting.delayed import Purgatories
    from kops.storage.producers.state import ActiveProducer
    from kops.storage.unified_log import UnifiedLog

log = logging.getLogger(__name__)

_KNOWN_FAILURES: Final = frozenset(
    {
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_LEADER_EPOCH",
        "FENCED_LEADER_EPOCH",
        "REPLICA_NOT_AVAILABLE",
        "KAFKA_STORAGE_ERROR",
        "INCONSISTENT_TOPIC_ID",
        "OFFSET_OUT_OF_RANGE",
    }
)
"""Errors of the client, or of a disk whose failure is known: they do not count as failed fetches."""
CONSUMER: Final = -1
DEBUGGING_REPLICA_ID: Final = -2
_NO_EPOCH: Final = -1


@mypyc_attr(acyclic=True)
class FetchPartitionData:
    """A partition's part of a fetch: `error` is a name of Kafka's Errors; offsets and `preferred_read_replica` are -1 for none. It is not
    changed.

    `records` is a slice of a segment (None: nothing). `start` is the position at which the read began, which a waiting fetch needs.
    `is_at_end` says whether this is also the end of the readable records.
    """

    __slots__ = (
        "aborted_transactions",
        "diverging_epoch",
        "error",
        "high_watermark",
        "is_at_end",
        "last_stable_offset",
        "log_start_offset",
        "preferred_read_replica",
        "records",
        "start",
    )

    def __init__(
        self,
        error: str,
        high_watermark: int = -1,
        log_start_offset: int = -1,
        records: Any = None,
        diverging_epoch: EpochEndOffset | None = None,
        last_stable_offset: int = -1,
        aborted_transactions: Any = None,
        preferred_read_replica: int = -1,
        start: LogOffsetMetadata = UNKNOWN_OFFSET_METADATA,
        is_at_end: bool = False,
    ) -> None:
        self.error = error
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.records = records
        self.diverging_epoch = diverging_epoch
        self.last_stable_offset = last_stable_offset
        self.aborted_transactions = aborted_transactions
        self.preferred_read_replica = preferred_read_replica
        self.start = start
        self.is_at_end = is_at_end


FetchAnswer = list[tuple["TopicPartition", FetchPartitionData]]
Awaited = tuple[tuple["TopicPartition", "FetchInfo"], tuple["TopicPartition", FetchPartitionData]]
"""A partition of a waiting fetch: the client's request, and the first result."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplicaReads:
    """The part of a ReplicaManager that reads. Without a `selector` every consumer reads from the leader."""

    def __init__(
        self,
        hosted: HostedPartitions,
        purgatories: Purgatories,
        cache: MetadataCache,
        now_ms: Callable[[], int],
        selector: ReplicaSelector | None,
    ) -> None:
        self._hosted = hosted
        self._purgatories = purgatories
        self._cache = cache
        self._now_ms = now_ms
        self._selector = selector

    # fetches ----------------------------------------------------------------------------------------------------------------------

    def begin(self, session: FetchSession, params: FetchParams) -> None:
        """Begin a fetch of a session: find out which of its resting partitions may stay at rest."""
        asks_as = (params.replica_id, params.replica_epoch, params.isolation, params.client_metadata is None)
        session.begin(asks_as, self._now_ms())
        if params.replica_id >= 0 and params.replica_epoch != BYPASS_BROKER_EPOCH:
            known_epoch = self._cache.alive_broker_epoch(params.replica_id)
            if known_epoch is not None and known_epoch > params.replica_epoch:
                session.wake_all()

    def fetch(
        self,
        params: FetchParams,
        infos: Sequence[tuple[TopicPartition, FetchInfo]],
        quota: ReplicaQuota,
        done: Callable[[FetchAnswer], None],
        session: FetchSession | None = None,
    ) -> None:
        """Read. If there are fewer than `min_bytes`, wait up to `max_wait_ms` for more. `done` is called once, with answers in the order of
        `infos`.

        A partition that fails, diverges, or must be read from another replica ends the wait at once. With a `session`, `infos` are its
        restless partitions. Partitions that became restless meanwhile are answered, too, all in the session's order.
        """
        append_count = self._hosted.append_count
        # A follower's fetch may complete an append, and as a consequence more may be appended to resting partitions of the session.
        disturbed: list[Rest] = []
        if session is not None:
            session.on_disturbed = disturbed.append
        answer = self.read(params, infos, quota)
        if session is not None:
            session.on_disturbed = None
        is_nothing_asked = not infos and (session is None or not session.partitions)
        awaited = [*zip(infos, answer, strict=True)] if session is None else self._let_rest(session, params, infos, answer)
        if params.max_wait_ms <= 0 or is_nothing_asked:
            done(answer)
            return
        size = 0
        # A follower's fetch may complete a Produce, and the client's next one may be appended before this fetch is parked.
        is_at_end = append_count == self._hosted.append_count and not disturbed
        for _, data in answer:
            is_at_end &= data.is_at_end
            if data.records is not None:
                size += data.records.size
            if data.error != "NONE" or data.diverging_epoch is not None or data.preferred_read_replica >= 0:
                done(answer)
                return
        if size >= params.min_bytes:
            done(answer)
            return
        _Parked(self, params, quota, done, session, awaited, is_at_end=is_at_end).park(self._hosted, self._purgatories, disturbed)

    def _let_rest(
        self, session: FetchSession, params: FetchParams, infos: Sequence[tuple[TopicPartition, FetchInfo]], answer: FetchAnswer
    ) -> list[Awaited]:
        """Put partitions without news to rest. Returns the others."""
        restless: list[Awaited] = []
        # The best replica for a consumer may change although the partition does not.
        may_rest = params.client_metadata is None or self._selector is None
        for asked, found in zip(infos, answer, strict=True):
            (key, info), (_, data) = asked, found
            if (
                may_rest
                and data.is_at_end
                and (cached := session.find(key, info)) is not None
                and cached.rest is None
                and cached.high_watermark == data.high_watermark
                and cached.log_start_offset == data.log_start_offset
                and (partition := self._hosted.online.get(key)) is not None
                and partition.is_as_read(params, info, data.high_watermark, data.log_start_offset)
            ):
                Rest(session, cached, data.start, partition, partition.remote_replicas.get(params.replica_id))
            else:
                restless.append((asked, found))
        return restless

    def read(
        self,
        params: FetchParams,
        infos: Sequence[tuple[TopicPartition, FetchInfo]],
        quota: ReplicaQuota,
        *,
        from_purgatory: bool = False,
    ) -> FetchAnswer:
        """Read the available records, up to `max_bytes` in total. The first records found are at least one whole batch of any size."""
        left = params.max_bytes
        min_one_batch = True
        now_ms = self._now_ms()
        answer: FetchAnswer = []
        stats_of = self._hosted.stats.of
        for key, info in infos:
            if not from_purgatory:
                stats_of(key.topic).total_fetch_requests += 1
            try:
                data = self._read(params, key, info, min(info.max_bytes, left), quota, now_ms, min_one_batch, not from_purgatory)
            except KopsError as error:
                data = FetchPartitionData(error_name(error))
                if data.error not in _KNOWN_FAILURES:
                    stats_of(key.topic).failed_fetch_requests += 1
                if data.error == "UNKNOWN_SERVER_ERROR":
                    log.error("Error processing fetch of replica %d on partition %s", params.replica_id, name_of(key), exc_info=error)
            if data.records is not None:
                min_one_batch = False
                left = max(0, left - data.records.size)
            answer.append((key, data))
        return answer

    def read_again(
        self, params: FetchParams, awaited: Sequence[Awaited], quota: ReplicaQuota, touched: Collection[Hashable]
    ) -> FetchAnswer:
        """Answer a fetch that found nothing at first. Reads only the partitions that have changed since."""
        changed = [asked for asked, (key, data) in awaited if key in touched or self._has_moved(params, asked[1], key, data)]
        read = dict(self.read(params, changed, quota, from_purgatory=True))
        return [(key, read.get(key, data)) for _, (key, data) in awaited]

    def _has_moved(self, params: FetchParams, info: FetchInfo, key: TopicPartition, data: FetchPartitionData) -> bool:
        """Whether something changed of which the waiting fetch was not notified: the log's start, a high watermark that this fetch moved,
        an end whose notification is due, the epoch of a leader that still leads."""
        partition = self._hosted.online.get(key)
        found = None if partition is None else partition.log
        return (
            partition is None
            or found is None
            or found.log_start_offset != data.log_start_offset
            or found.high_watermark != data.high_watermark
            or (params.isolation is Isolation.LOG_END and found.log_end_offset != data.start.message_offset)
            or partition.check_leader_epoch(info.current_leader_epoch) != "NONE"
            or (params.fetch_only_leader and not partition.is_leader)
        )

    def _read(
        self,
        params: FetchParams,
        key: TopicPartition,
        info: FetchInfo,
        max_bytes: int,
        quota: ReplicaQuota,
        now_ms: int,
        min_one_batch: bool,
        update_fetch_state: bool,
    ) -> FetchPartitionData:
        partition = self._hosted.online.get(key)
        if partition is None:
            raise self._hosted.missing(key)
        if info.topic_id not in (partition.topic_id, ZERO_UUID):
            raise ApiError("INCONSISTENT_TOPIC_ID", "Topic ID in the fetch session did not match the topic ID in the log.")
        if params.client_metadata is not None and self._selector is not None:
            preferred = self._preferred_read_replica(partition, params.client_metadata, params.replica_id, info.fetch_offset, now_ms)
            if preferred is not None:
                offsets = partition.fetch_offset_snapshot(info.current_leader_epoch, fetch_only_from_leader=False)
                return FetchPartitionData(
                    "NONE",
                    offsets.high_watermark.message_offset,
                    offsets.log_start_offset,
                    last_stable_offset=offsets.last_stable_offset.message_offset,
                    preferred_read_replica=preferred,
                )
        found = partition.fetch_records(params, info, now_ms, max_bytes, min_one_batch=min_one_batch, update_fetch_state=update_fetch_state)
        fetched = found.fetched
        if fetched is None:
            return FetchPartitionData(
                "NONE", found.high_watermark, found.log_start_offset, None, found.diverging_epoch, found.last_stable_offset
            )
        records, aborted = fetched.records, fetched.aborted_transactions
        if records is not None:
            is_behind = params.replica_id >= 0 and params.replica_id not in partition.isr_state.isr
            if (is_behind and should_throttle(quota, partition, params.replica_id)) or fetched.first_entry_incomplete:
                records = aborted = None
        return FetchPartitionData(
            "NONE",
            found.high_watermark,
            found.log_start_offset,
            records,
            None,
            found.last_stable_offset,
            aborted,
            -1,
            fetched.offset_metadata,
            fetched.records is None and info.fetch_offset == self._end_of(found, params.isolation),
        )

    @staticmethod
    def _end_of(found: LogRead, isolation: Isolation) -> int:
        if isolation is Isolation.LOG_END:
            return found.log_end_offset
        return found.high_watermark if isolation is Isolation.HIGH_WATERMARK else found.last_stable_offset

    def _preferred_read_replica(
        self, partition: Partition, client: ClientMetadata, replica_id: int, fetch_offset: int, now_ms: int
    ) -> int | None:
        if self._selector is None or replica_id >= 0 or not partition.is_leader:
            return None
        key = partition.topic_partition
        nodes = self._cache.replica_endpoints(key.topic, key.partition, client.listener_name)
        racks = {broker_id: node.rack for broker_id, node in nodes.items() if node.host}
        return find_preferred_read_replica(partition, self._selector, client, racks, fetch_offset, now_ms)

    # look-ups ---------------------------------------------------------------------------------------------------------------------

    def list_offsets(
        self,
        key: TopicPartition,
        timestamp: int,
        *,
        replica_id: int = CONSUMER,
        isolation_level: int = 0,
        current_leader_epoch: int | None = None,
    ) -> OffsetFound:
        """Return the offset for a timestamp (or -1, -2 …) among the records that the client may read. Raises the partition's ApiError
        (OFFSET_NOT_AVAILABLE …)."""
        isolation = isolation_level if replica_id == CONSUMER else None
        only_leader = replica_id != DEBUGGING_REPLICA_ID
        try:
            partition = self._hosted.get_or_raise(key)
            return partition.fetch_offset_for_timestamp(timestamp, isolation, current_leader_epoch, fetch_only_from_leader=only_leader)
        except KopsError as error:
            raise _as_api_error(error) from error

    def end_offset_for_epoch(
        self, key: TopicPartition, current_leader_epoch: int, leader_epoch: int, *, fetch_only_from_leader: bool = True
    ) -> EpochEndOffset:
        """Return the largest epoch up to `leader_epoch`, and its end. A `current_leader_epoch` of -1 is not compared."""
        partition = self._hosted.online.get(key)
        if partition is None:
            return EpochEndOffset(error=self._hosted.missing(key).name)
        epoch = None if current_leader_epoch == _NO_EPOCH else current_leader_epoch
        return partition.last_offset_for_leader_epoch(epoch, leader_epoch, fetch_only_from_leader=fetch_only_from_leader)

    def describe_producers(self, key: TopicPartition) -> list[ActiveProducer]:
        """Return the producers of a partition on this broker. Raises the ApiErrors of `get_or_raise`, and NOT_LEADER_OR_FOLLOWER without a
        log."""
        partition = self._hosted.get_or_raise(key)
        if partition.log is None:
            raise ApiError("NOT_LEADER_OR_FOLLOWER", f"Log for partition {name_of(key)} is not available")
        return cast("UnifiedLog", partition.log).producers.active_producers()


class _Parked:
    """A waiting fetch."""

    __slots__ = ("_awaited", "_done", "_is_at_end", "_operation", "_params", "_purgatory", "_quota", "_reads", "_session")

    def __init__(
        self,
        reads: ReplicaReads,
        params: FetchParams,
        quota: ReplicaQuota,
        done: Callable[[FetchAnswer], None],
        session: FetchSession | None,
        awaited: list[Awaited],
        *,
        is_at_end: bool,
    ) -> None:
        self._reads = reads
        self._params = params
        self._quota = quota
        self._done = done
        self._session = session
        self._awaited = awaited
        self._is_at_end = is_at_end

    def park(self, hosted: HostedPartitions, purgatories: Purgatories, disturbed: Iterable[Rest]) -> None:
        """Wait, unless enough has arrived in between. `disturbed` are the partitions that left their rest after the fetch began."""
        quota, purgatory = self._quota, purgatories.fetch
        statuses = {key: AwaitedFetch(data.start, info) for (key, info), (_, data) in self._awaited}
        watched = list(statuses)
        self._operation = operation = DelayedFetch(
            self._params,
            statuses,
            hosted.get_or_raise,
            lambda partition, replica_id: should_throttle(quota, partition, replica_id),
            self._respond,
        )
        operation.begins_empty = self._is_at_end
        self._purgatory = purgatory
        if self._session is not None:
            self._session.on_disturbed = self._join
        for rest in disturbed:
            self._join(rest)
        if self._is_at_end:
            purgatory.watch(operation, watched)
        else:
            purgatory.try_complete_else_watch(operation, watched)

    def _join(self, rest: Rest) -> None:
        """Also wait for a partition of the session that is no longer at rest."""
        key, cached = rest.key, rest.cached
        self._operation.join(key, AwaitedFetch(rest.start, cached.info))
        self._purgatory.watch_also(self._operation, key)
        self._awaited.append(((key, cached.info), (key, FetchPartitionData("NONE", start=rest.start))))

    def _respond(self) -> None:
        session, params = self._session, self._params
        if session is not None:
            if session.on_disturbed == self._join:
                session.on_disturbed = None
            if len(self._awaited) > 1:
                self._awaited.sort(key=lambda each: session.rank_of(*each[0]))
        if self._is_at_end:
            self._done(self._reads.read_again(params, self._awaited, self._quota, self._operation.touched))
        else:
            self._done(self._reads.read(params, [asked for asked, _ in self._awaited], self._quota, from_purgatory=True))


def should_throttle(quota: ReplicaQuota, partition: Partition, replica_id: int) -> bool:
    """Whether a follower must wait for the leader's quota. An in-sync follower need not, so that throttling never shrinks an ISR."""
    return replica_id not in partition.in_sync_replica_ids and quota.is_throttled(partition.topic_partition) and quota.is_quota_exceeded


def _as_api_error(error: KopsError) -> ApiError:
    return error if isinstance(error, ApiError) else ApiError(error_name(error), str(error))
