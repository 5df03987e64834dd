"""Fetch requests: which partitions are asked of which node, one request at a time to each, and what their answers contain.

Source: Kafka's AbstractFetch, FetchRequestManager, FetchBuffer; KIP-227 (sessions), KIP-392 (preferred replicas), KIP-951 (leaders with
errors).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from kops.client.consumer.core.collecting import CompletedFetch
from kops.client.consumer.core.sessions import FetchSession, SessionFetch, Wanted
from kops.client.consumer.parts.requests import Outgoing
from kops.client.metadata import Leader
from kops.client.node import Node
from kops.errors import ApiError
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.errors import by_code
from kops.protocol.messages import FetchRequest, FetchResponse
from kops.protocol.messages.fetch_request import FetchPartition, FetchTopic, ForgottenTopic
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from kops.client.consumer.options import ConsumerOptions
    from kops.client.consumer.parts.metadata import ConsumerMetadata
    from kops.client.consumer.parts.requests import Links
    from kops.client.consumer.parts.state import PartitionState, Subscriptions
    from kops.client.metrics.consumer import ConsumerMetrics
    from kops.protocol.declaration import Message
    from kops.protocol.messages.fetch_response import PartitionData

_FIRST_VERSION_WITH_IDS: Final = 13
_TELL_LEADERS: Final = ("NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH")


class Fetcher:
    """Fetches the partitions of a consumer. `completed` are the answers that `poll` has not returned yet."""

    def __init__(
        self,
        options: ConsumerOptions,
        metadata: ConsumerMetadata,
        subscriptions: Subscriptions,
        links: Links,
        use_leader: Callable[[TopicPartition], None],
        metrics: ConsumerMetrics | None = None,
    ) -> None:
        self.completed: deque[CompletedFetch] = deque()
        self._use_leader = use_leader
        self._metrics = metrics
        self._options = options
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._links = links
        self._sessions: dict[int, FetchSession] = {}
        self._pending: set[int] = set()

    def retain(self, keys: Collection[TopicPartition]) -> None:
        """Drop the answers about all other partitions."""
        kept = [fetch for fetch in self.completed if fetch.key in keys]
        self.completed.clear()
        self.completed.extend(kept)

    def turn(self, now_ms: float) -> list[Outgoing]:
        """Return the requests to send now."""
        subscriptions = self._subscriptions
        buffered = {fetch.key for fetch in self.completed}
        fetchable = [key for key in subscriptions.partitions if key not in buffered and subscriptions.is_fetchable(key)]
        if not fetchable:
            return []
        busy = self._pending | self._nodes_of(buffered, now_ms)
        wanted: dict[Node, dict[TopicPartition, Wanted]] = {}
        topic_ids, size = self._metadata.cluster.topic_ids, self._options.max_partition_fetch_bytes
        for key in fetchable:
            state = subscriptions.partitions[key]
            node = self._source(key, state, now_ms)
            if node is None or node.id in busy or self._links.is_backing_off(node):
                continue
            position = state.position
            assert position is not None
            entry = Wanted(topic_ids.get(key.topic, ZERO_UUID), position.offset, size, position.leader.epoch)
            wanted.setdefault(node, {})[key] = entry
        return [self._request(node, entries) for node, entries in wanted.items()]

    def _nodes_of(self, buffered: Iterable[TopicPartition], now_ms: float) -> set[int]:
        """Return the nodes with records that are not returned yet. A request without these would drop them from the session."""
        found = set()
        for key in buffered:
            if self._subscriptions.is_fetchable(key):
                node = self._source(key, self._subscriptions.partitions[key], now_ms)
                if node is not None:
                    found.add(node.id)
        return found

    def _source(self, key: TopicPartition, state: PartitionState, now_ms: float) -> Node | None:
        """Return the node to fetch from: the preferred replica, or the leader."""
        assert state.position is not None
        nodes = self._metadata.cluster.nodes
        replica = None if state.position.leader.node_id < 0 else state.read_replica(now_ms)
        if replica is not None:
            if self._metadata.is_online(key, replica):
                return nodes[replica]
            state.clear_replica()
            self._metadata.want()
        leader_id = state.position.leader.node_id
        leader = nodes.get(leader_id) if leader_id >= 0 else None  # bootstrap servers have ids below 0
        if leader is None:
            self._metadata.want()
        return leader

    def _request(self, node: Node, wanted: dict[TopicPartition, Wanted]) -> Outgoing:
        session = self._sessions.setdefault(node.id, FetchSession())
        fetch = session.build(wanted)
        self._pending.add(node.id)
        return Outgoing(
            node,
            self._message(fetch),
            lambda answer, now_ms: self._answered(node, session, fetch, answer, now_ms),
            versions=_versions(fetch),
        )

    def _message(self, fetch: SessionFetch) -> FetchRequest:
        options = self._options
        topics: list[FetchTopic] = []
        for key, one in fetch.send.items():
            if not topics or topics[-1].topic != key.topic:  # as in Kafka, a topic comes again where another one is between
                topics.append(FetchTopic(topic=key.topic, topic_id=one.topic_id, partitions=[]))
            entry = FetchPartition(
                partition=key.partition,
                current_leader_epoch=one.leader_epoch,
                fetch_offset=one.offset,
                partition_max_bytes=one.max_bytes,
            )
            topics[-1].partitions.append(entry)
        forgotten: dict[tuple[str, bytes], list[int]] = {}
        for topic_id, key in fetch.forgotten:
            forgotten.setdefault((key.topic, topic_id), []).append(key.partition)
        return FetchRequest(
            max_wait_ms=options.fetch_max_wait_ms,
            min_bytes=options.fetch_min_bytes,
            max_bytes=options.fetch_max_bytes,
            isolation_level=int(options.is_committed),
            session_id=fetch.session_id,
            session_epoch=fetch.epoch,
            topics=topics,
            forgotten_topics_data=[ForgottenTopic(name, topic_id, entries) for (name, topic_id), entries in forgotten.items()],
            rack_id=options.rack,
        )

    def _answered(self, node: Node, session: FetchSession, fetch: SessionFetch, answer: Message | ApiError, now_ms: float) -> None:
        self._pending.discard(node.id)
        if isinstance(answer, ApiError):
            session.failed()
            # The node may have failed: its partitions return to their leaders, and leaders are looked up again.
            for key in fetch.partitions:
                state = self._subscriptions.partitions.get(key)
                if state is not None:
                    state.clear_replica()
            if answer.name != "UNSUPPORTED_VERSION":
                self._metadata.want()
            return
        assert isinstance(answer, FetchResponse)
        if answer.error_code:
            session.refused(by_code(answer.error_code).name)
            if by_code(answer.error_code).name == "FETCH_SESSION_TOPIC_ID_ERROR":
                self._metadata.want()
            return
        found = [
            (TopicPartition(topic.topic or session.names.get(topic.topic_id, ""), one.partition_index), one)
            for topic in answer.responses
            for one in topic.partitions
        ]
        if not session.accept(answer.session_id, (key for key, _ in found)):
            return
        parts = None if self._metrics is None or not found else self._metrics.parts(key for key, _ in found)
        for key, data in found:
            asked = fetch.partitions.get(key)
            if asked is None:
                continue
            self.completed.append(CompletedFetch(key, data, asked.offset, parts))
        self._learn_leaders(found, answer)

    def _learn_leaders(self, found: list[tuple[TopicPartition, PartitionData]], answer: FetchResponse) -> None:
        """Take the newer leaders of an answer (KIP-951), and validate the positions with them."""
        cluster = self._metadata.cluster
        told: dict[TopicPartition, Leader] = {}
        for key, data in found:
            leader = Leader(data.current_leader.leader_id, data.current_leader.leader_epoch)
            if data.error_code and by_code(data.error_code).name in _TELL_LEADERS and leader.node_id >= 0 and leader.epoch >= 0:
                told[key] = leader
        if not told:
            return
        nodes = {one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in answer.node_endpoints if one.node_id >= 0}
        updated = [
            key
            for key, leader in told.items()
            if (leader.node_id in nodes or leader.node_id in cluster.nodes)
            and key in cluster.leaders
            and leader.epoch > cluster.leaders[key].epoch
            and cluster.update_leader(key, leader)
        ]
        if updated:
            cluster.add_nodes(nodes.values())
        for key in updated:
            self._use_leader(key)

    def close(self) -> list[Outgoing]:
        """Return the requests that end the sessions."""
        requests = []
        for node_id, session in self._sessions.items():
            node = self._metadata.cluster.nodes.get(node_id)
            if node is None or node_id in self._pending or not session.session_id or self._links.is_backing_off(node):
                continue
            session.close()
            fetch = session.build({})
            requests.append(Outgoing(node, self._message(fetch), lambda answer, now_ms: None, versions=_versions(fetch)))
        self._sessions.clear()
        return requests


def _versions(fetch: SessionFetch) -> range:
    versions = FetchRequest.VERSIONS
    return versions if fetch.can_use_ids else range(versions.start, _FIRST_VERSION_WITH_IDS)
