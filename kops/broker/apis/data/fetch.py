"""Fetch, versions 4 to 18, of consumers and followers (Kafka's KafkaApis.handleFetchRequest; KIP-227, KIP-392, KIP-516, KIP-951).

Records are sent as the slices of segments that the log returned. A slice of a few KiB is read here and sent with the rest of the response.
Larger ones are read, if at all, when they are sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kops.broker.apis.data.leaders import current_leader
from kops.errors import ApiError
from kops.protocol.connections.frames import SIZE
from kops.protocol.errors import BY_NAME
from kops.protocol.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from kops.protocol.primitives import size_of
from kops.protocol.structure import SMALL_RECORDS_SIZE
from kops.records.log_offsets import TopicPartition
from kops.replication.leading.fetch import ClientMetadata, FetchInfo, FetchParams, isolation_of
from kops.replication.leading.fetch_context import fetch_response
from kops.replication.leading.fetch_session import FIRST_VERSION_WITH_TOPIC_IDS, INVALID_SESSION_ID, FetchMetadata, TopicIdPartition
from kops.replication.quota import UnboundedQuota

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.broker.replicas.reads import FetchPartitionData
    from kops.protocol.messages.fetch_request import FetchRequest
    from kops.replication.leading.fetch_context import FetchContext
    from kops.storage.segment_files.file_records import LogView

_FIRST_VERSION_WITH_RACKS: Final = 11
_FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
_FIRST_VERSION_WITH_LEADERS: Final = 16
_LAST_VERSION_WITHOUT_STORAGE_ERROR: Final = 5
_MOVED: Final = ("NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH")
_ISOLATION_LEVELS: Final = (0, 1)
# The defaults of a partition's answer, which nothing changes. Each answer would make these objects again.
_NOT_DIVERGING: Final = EpochEndOffset()
_UNKNOWN_LEADER: Final = LeaderIdAndEpoch()
_NO_SNAPSHOT: Final = SnapshotId()
_UNBOUNDED: Final = UnboundedQuota()


def handle_fetch(parts: BrokerParts, context: RequestContext) -> None:
    """Answer at once, or when there is enough data. Raises ApiError UNKNOWN_SERVER_ERROR for an unknown isolation level."""
    request = cast("FetchRequest", context.request.message)
    version = context.request.version
    replica_id = request.replica_id if version < _FIRST_VERSION_WITH_REPLICA_STATE else request.replica_state.replica_id
    session = parts.fetch_sessions.new_context(
        version,
        FetchMetadata(request.session_id, request.session_epoch),
        _fetch_data(parts, request, version),
        _forgotten(parts, request, version) if request.forgotten_topics_data else (),
        parts.cache.topic_name,
        is_from_follower=replica_id >= 0,
    )
    max_bytes = min(request.max_bytes, parts.config["fetch.max.bytes"])
    params = FetchParams(
        replica_id,
        request.replica_state.replica_epoch,
        request.max_wait_ms,
        min(request.min_bytes, max_bytes),
        max_bytes,
        isolation_of(replica_id, request.isolation_level),
        # The rack of a follower does not matter, because it fetches from the leader.
        _client_of(context, request) if replica_id < 0 and version >= _FIRST_VERSION_WITH_RACKS else None,
    )
    going_on = session.session
    if going_on is not None:
        parts.replica_manager.begin_fetch(going_on, params)
    fetch = _Fetch(parts, context, session, is_from_follower=replica_id >= 0)
    infos = fetch.take()
    if not infos and (going_on is None or len(going_on.restless) == len(going_on.partitions)):
        fetch.answer(())
        return
    if request.isolation_level not in _ISOLATION_LEVELS:
        raise ApiError("UNKNOWN_SERVER_ERROR", f"Unknown isolation level {request.isolation_level}")
    quota = parts.replica_manager.leader_quota if replica_id >= 0 else _UNBOUNDED
    parts.replica_manager.fetch(params, infos, quota, fetch.answer, going_on)


def _client_of(context: RequestContext, request: FetchRequest) -> ClientMetadata:
    return ClientMetadata(request.rack_id, context.client_id, context.listener_name)


def _fetch_data(parts: BrokerParts, request: FetchRequest, version: int) -> dict[TopicIdPartition, FetchInfo]:
    data = {}
    for topic in request.topics:
        topic_id = topic.topic_id
        name = topic.topic if version < FIRST_VERSION_WITH_TOPIC_IDS else parts.cache.topic_name(topic_id)
        for one in topic.partitions:
            data[TopicIdPartition(topic_id, name, one.partition)] = FetchInfo(
                one.fetch_offset,
                one.log_start_offset,
                one.partition_max_bytes,
                one.current_leader_epoch if one.current_leader_epoch >= 0 else None,
                one.last_fetched_epoch if one.last_fetched_epoch >= 0 else None,
                topic_id,
            )
    return data


def _forgotten(parts: BrokerParts, request: FetchRequest, version: int) -> list[TopicIdPartition]:
    return [
        TopicIdPartition(
            topic.topic_id, topic.topic if version < FIRST_VERSION_WITH_TOPIC_IDS else parts.cache.topic_name(topic.topic_id), number
        )
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]


def in_memory(records: LogView | bytes) -> LogView | bytes:
    """Return the bytes of a small slice, which are then sent in one buffer with the rest of the response."""
    if isinstance(records, bytes):
        return records
    try:
        data = records.source.read(records.start, records.size)
    except OSError:
        return records  # Sending it will fail, too, and end the connection.
    return data if len(data) == records.size else records


def _refused(part: TopicIdPartition, error: str) -> PartitionData:
    return PartitionData(part.partition, BY_NAME[error].code, -1, records=b"")


class _Fetch:
    """A fetch in progress: its session, and the partitions that were rejected before a log was read."""

    __slots__ = ("_context", "_is_from_follower", "_parts", "_refused", "_session", "_taken", "_version")

    def __init__(self, parts: BrokerParts, context: RequestContext, session: FetchContext, *, is_from_follower: bool) -> None:
        self._parts = parts
        self._is_from_follower = is_from_follower
        self._context = context
        self._version = context.request.version
        self._session = session
        self._refused: dict[TopicIdPartition, PartitionData] = {}
        self._taken: dict[TopicPartition, TopicIdPartition] = {}

    def take(self) -> list[tuple[TopicPartition, FetchInfo]]:
        """The existing partitions, with what to fetch of each."""
        taken = []
        topics = self._parts.cache.image.topics.by_name
        for part, info in self._session.partitions():
            if part.topic is None:
                self._refused[part] = _refused(part, "UNKNOWN_TOPIC_ID")
                continue
            image = topics.get(part.topic)
            if image is None or image.partitions.get(part.partition) is None:
                self._refused[part] = _refused(part, "UNKNOWN_TOPIC_OR_PARTITION")
                continue
            key = part.named(part.topic)
            self._taken[key] = part
            taken.append((key, info))
        return taken

    def answer(self, found: Iterable[tuple[TopicPartition, FetchPartitionData]]) -> None:
        """Send the results that are new for the client's session."""
        nodes: dict[int, NodeEndpoint] = {}
        is_known = self._session.is_known
        updates = {}
        for key, data in found:
            part = self._taken.get(key) or self._session.part_of(key)
            if not (data.is_at_end and is_known(part, data.high_watermark, data.log_start_offset)):
                updates[part] = self._partition(key, data, nodes)
        if self._refused:
            updates.update(self._refused)
        # Followers learn leaders from the metadata log.
        response = self._session.respond(updates, () if self._is_from_follower else nodes.values())
        if self._is_from_follower and self._parts.replica_manager.leader_quota.has_throttled:
            self._record_throttled(response)
        self._context.respond(response)

    def _record_throttled(self, response: FetchResponse) -> None:
        """Count the bytes for throttled partitions: the size of a response with only these."""
        quota = self._parts.replica_manager.leader_quota
        name_of = self._parts.cache.topic_name
        throttled: dict[TopicIdPartition, PartitionData] = {}
        for topic in response.responses:
            name = topic.topic or name_of(topic.topic_id)
            for data in topic.partitions:
                if name is not None and quota.is_throttled(TopicPartition(name, data.partition_index)):
                    throttled[TopicIdPartition(topic.topic_id, name, data.partition_index)] = data
        alone = fetch_response("NONE", INVALID_SESSION_ID, throttled)
        quota.record(SIZE.size + sum(map(size_of, alone.write(self._version))))

    def _partition(self, key: TopicPartition, data: FetchPartitionData, nodes: dict[int, NodeEndpoint]) -> PartitionData:
        error = data.error
        records = data.records
        if records is None:
            records = b""
        else:
            stats, size = self._parts.replica_manager.stats, size_of(records)
            if size <= SMALL_RECORDS_SIZE:
                records = in_memory(records)
            if self._is_from_follower:
                stats.replication_bytes_out += size
            else:
                stats.of(key.topic).bytes_out += size
        if error == "KAFKA_STORAGE_ERROR" and self._version <= _LAST_VERSION_WITHOUT_STORAGE_ERROR:
            error = "NOT_LEADER_OR_FOLLOWER"  # These clients treat the other error as fatal.
        answer = PartitionData(
            key.partition,
            0 if error == "NONE" else BY_NAME[error].code,
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            _NOT_DIVERGING,
            _UNKNOWN_LEADER,
            _NO_SNAPSHOT,
            None,
            data.preferred_read_replica,
            records,
        )
        if data.aborted_transactions is not None:
            answer.aborted_transactions = [AbortedTransaction(one.producer_id, one.first_offset) for one in data.aborted_transactions]
        if data.diverging_epoch is not None:
            answer.diverging_epoch = EpochEndOffset(data.diverging_epoch.leader_epoch, data.diverging_epoch.end_offset)
        if data.error in _MOVED and self._version >= _FIRST_VERSION_WITH_LEADERS:
            leader = current_leader(self._parts, key, self._context.listener_name)
            answer.current_leader = LeaderIdAndEpoch(leader.id, leader.epoch)
            if leader.node is not None:
                nodes[leader.id] = NodeEndpoint(leader.id, leader.node.host, leader.node.port, leader.node.rack)
        return answer
