"""Decides which ShareFetch and ShareAcknowledge to send to which node, and handles their answers.

Source: Kafka's ShareConsumeRequestManager, in its order of steps: acknowledgements of commits first, then one fetch a node, which carries
the other acknowledgements. Only the node that delivered a record knows of its lock: if the leader has changed, acknowledgements fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kops.client.consumer.errors import as_kafka
from kops.client.errors import KafkaError, error_named
from kops.client.metadata import Leader
from kops.client.node import Node
from kops.client.producer.core.links import Outgoing
from kops.client.share.core.acknowledgements import AcknowledgementMap, Acknowledgements, TopicIdPartition
from kops.client.share.core.commits import AckMap, AckRequest, Commit, Completed, Kind, NodeRequests, Outcomes
from kops.client.share.core.fetched import CompletedFetch, FetchBuffer
from kops.client.share.core.sessions import BATCH_OPTIMIZED, RECORD_LIMIT, FetchLimits, ShareSession
from kops.errors import ApiError
from kops.protocol.errors import by_code
from kops.protocol.messages import ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest, ShareFetchResponse
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kops.client.metrics.share import ShareMetrics
    from kops.protocol.declaration import Message
    from kops.protocol.messages.share_acknowledge_response import NodeEndpoint as AckNodeEndpoint
    from kops.protocol.messages.share_acknowledge_response import PartitionData as AckPartitionData
    from kops.protocol.messages.share_fetch_response import NodeEndpoint as FetchNodeEndpoint
    from kops.protocol.messages.share_fetch_response import PartitionData as FetchPartitionData

_MOVED: Final = ("NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH")
_GONE: Final = (*_MOVED, "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID")
_ONLY_VERSION_2: Final = range(2, ShareFetchRequest.VERSIONS.stop)


class Cluster(Protocol):
    """What is known of the cluster."""

    def leader(self, key: TopicPartition) -> Node | None:
        """The leader of a partition, or None."""

    def node(self, node_id: int) -> Node | None:
        """A node, or None."""

    def topic_id(self, topic: str) -> bytes | None:
        """The id of a topic, or None."""

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic, or None."""

    def want(self) -> None:
        """Ask for metadata."""

    def moved(self, leaders: dict[TopicPartition, Leader], nodes: Iterable[Node]) -> None:
        """Take the leaders of an answer (KIP-951)."""


class ShareRequests:
    """The requests of a share consumer. `completed` are acknowledgements with a new outcome."""

    def __init__(
        self,
        limits: FetchLimits,
        cluster: Cluster,
        buffer: FetchBuffer,
        backoff_ms: Callable[[int], float],
        metrics: ShareMetrics | None = None,
    ) -> None:
        self._metrics = metrics
        self.member_id: str | None = None  # until the member has one, nothing is sent
        self.assigned: dict[TopicPartition, None] = {}  # in the order in which they are fetched
        self.completed: list[Completed] = []
        self.has_callback = False
        self.sessions: dict[int, ShareSession] = {}
        self.is_closing = False
        self.is_closed = False
        self._limits = limits
        self._cluster = cluster
        self._buffer = buffer
        self._backoff_ms = backoff_ms
        self._is_limited = limits.acquire_mode == RECORD_LIMIT
        self._is_fetching = False
        self._fetching_node: int | None = None  # with record_limit, one node at a time delivers
        self._busy: set[int] = set()
        self._to_send: dict[int, AckMap] = {}  # with the next fetch
        self._in_flight: dict[int, AckMap] = {}  # with a fetch
        self._commits: dict[int, NodeRequests] = {}
        self._names: dict[tuple[bytes, int], str] = {}  # of fetched topics that may be gone from the metadata

    # what is next

    def turn(self, now_ms: float) -> list[Outgoing]:
        """Return the requests to send now."""
        if self.member_id is None:
            self.is_closed = self.is_closing
            return []
        requests = self._send_commits(now_ms)
        if requests:
            return requests
        for node_id, commits in list(self._commits.items()):
            if not commits.drop_finished():
                del self._commits[node_id]
        if self._commits:
            return []  # nothing is fetched before every commit has its outcome
        if self.is_closing:
            self.is_closed = True
            return []
        return self._send_fetches() if self._is_fetching else []

    def wake_ms(self) -> float:
        """When there may be a request without a new event."""
        return min((commits.wake_ms() for node_id, commits in self._commits.items() if node_id not in self._busy), default=float("inf"))

    def fetch(self, acknowledgements: AcknowledgementMap) -> None:
        """Fetch more records. The acknowledgements go with the fetch."""
        self._is_fetching = True
        for partition, (node_id, one) in acknowledgements.items():
            _add(self._to_send.setdefault(node_id, {}), partition, one)

    # fetches

    def _send_fetches(self) -> list[Outgoing]:
        targets: dict[int, Node] = {}
        for key in list(self.assigned):
            node, topic_id = self._cluster.leader(key), self._cluster.topic_id(key.topic)
            if node is None or topic_id is None:
                self._cluster.want()
            elif node.id not in self._busy:
                self._add_to_fetch(node, TopicIdPartition(topic_id, key.partition, key.topic))
                targets[node.id] = node
                if self._is_limited and self._fetching_node is None:
                    self._fetching_node = node.id
                    self.assigned[key] = self.assigned.pop(key)  # the next fetch begins with another partition
        for node_id, session in self.sessions.items():
            node = self._cluster.node(node_id)
            if node is not None and node_id not in self._busy and self._add_other_acknowledgements(node, session):
                targets[node_id] = node
        return [request for node in targets.values() if (request := self._fetch(node)) is not None]

    def _add_to_fetch(self, node: Node, partition: TopicIdPartition) -> None:
        assert self.member_id is not None
        session = self.sessions.get(node.id)
        if session is None:
            session = self.sessions[node.id] = ShareSession(self.member_id)
        acknowledgements = self._to_send.get(node.id, {}).pop(partition, None)
        if acknowledgements is not None and not self._may_carry(session, node, partition, acknowledgements):
            acknowledgements = None
        session.add(partition, acknowledgements)
        self._names.setdefault((partition.topic_id, partition.partition), partition.topic)

    def _add_other_acknowledgements(self, node: Node, session: ShareSession) -> bool:
        """Add those of partitions that are no longer assigned. Returns whether there are any to send."""
        has_any = False
        for partition, acknowledgements in self._to_send.pop(node.id, {}).items():
            if self._has_moved(node.id, partition):
                self._fail({partition: acknowledgements}, error_named("NOT_LEADER_OR_FOLLOWER"))
            elif self._may_carry(session, node, partition, acknowledgements):
                session.acknowledge_only(partition, acknowledgements)
                self._names.setdefault((partition.topic_id, partition.partition), partition.topic)
                has_any = True
        return has_any

    def _may_carry(self, session: ShareSession, node: Node, partition: TopicIdPartition, acknowledgements: Acknowledgements) -> bool:
        """Whether the next fetch can carry acknowledgements. If it opens the session, they fail: the locks are gone."""
        if session.is_new:
            self._fail({partition: acknowledgements}, error_named("NOT_LEADER_OR_FOLLOWER"))
            return False
        self._in_flight.setdefault(node.id, {})[partition] = acknowledgements
        self._count_sent(acknowledgements)
        return True

    def _fetch(self, node: Node) -> Outgoing | None:
        may_skip = self._is_limited and node.id != self._fetching_node
        request = self.sessions[node.id].fetch_request(self._limits, may_skip=may_skip)
        if request is None:
            return None
        self._busy.add(node.id)
        is_new = request.is_renew_ack or request.share_acquire_mode != BATCH_OPTIMIZED
        return Outgoing(
            node,
            request,
            lambda answer, now_ms: self._fetch_answered(node, request, answer),
            _ONLY_VERSION_2 if is_new else None,
        )

    def _fetch_answered(self, node: Node, request: ShareFetchRequest, answer: Message | ApiError) -> None:
        if self._fetching_node == node.id:
            self._fetching_node = None
        self._busy.discard(node.id)
        session = self.sessions.get(node.id)
        if isinstance(answer, ApiError):
            if session is not None:
                session.failed()
            self._fail_sent(self._in_flight.pop(node.id, {}), as_kafka(answer), may_renew=request.is_renew_ack)
            return
        assert isinstance(answer, ShareFetchResponse)
        if session is None:
            return
        error = by_code(answer.error_code).name
        if not session.fetched(error):
            if error == "UNKNOWN_TOPIC_ID":
                self._cluster.want()
            self._fail_sent(self._in_flight.pop(node.id, {}), error_named(error), may_renew=request.is_renew_ack)
            return
        self._fetched(node, request, answer)

    def _fetched(self, node: Node, request: ShareFetchRequest, answer: ShareFetchResponse) -> None:
        lock_timeout_ms = answer.acquisition_lock_timeout_ms if answer.acquisition_lock_timeout_ms > 0 else None
        in_flight = self._in_flight.pop(node.id, {})
        completed: list[CompletedFetch] = []
        leaders: dict[TopicPartition, Leader] = {}
        found = [
            (partition, one)
            for topic in answer.responses
            for one in topic.partitions
            if (partition := self._look_up(topic.topic_id, one.partition_index)) is not None
        ]
        keys = (TopicPartition(partition.topic, partition.partition) for partition, _ in found)
        parts = None if self._metrics is None else self._metrics.parts(keys)
        for partition, one in found:
            acknowledgements = in_flight.pop(partition, None)
            if acknowledgements is not None:
                code = by_code(one.acknowledge_error_code).name
                error = None if code == "NONE" else error_named(code, one.acknowledge_error_message or "")
                if error is not None:
                    self._count_failed(acknowledgements)
                acknowledgements.complete(error)
                self._tell(Completed({partition: acknowledgements}, request.is_renew_ack, lock_timeout_ms))
            _note_leader(leaders, partition, one, _MOVED)
            completed.append(CompletedFetch(node.id, partition, one, lock_timeout_ms, parts))
            if one.acquired_records:
                self._is_fetching = False
        self._buffer.add(completed)
        self._fail(in_flight, error_named("INVALID_RECORD_STATE", "the broker's answer does not mention these records"))
        self._take_leaders(leaders, answer.node_endpoints)

    # commits

    def commit_sync(self, acknowledgements: AcknowledgementMap, deadline_ms: float, now_ms: float) -> Commit:
        """Send acknowledgements, for a program that waits for the outcome."""
        outcomes = Outcomes(Kind.SYNC, self._tell)
        assert outcomes.commit is not None
        sendable, others = self._sort(acknowledgements)
        outcomes.remaining = len(others) + sum(map(len, sendable.values()))
        for node_id, by_partition in sendable.items():
            to_send = self._of_session(node_id, by_partition, others)
            if to_send:
                request = AckRequest(Kind.SYNC, self.sessions[node_id], to_send, outcomes, deadline_ms, now_ms, self._backoff_ms)
                self._commits.setdefault(node_id, NodeRequests()).synchronous.append(request)
        for partition, one in others:
            outcomes.complete(partition, one, error_named("NOT_LEADER_OR_FOLLOWER"))
        outcomes.finish_if_complete()
        return outcomes.commit

    def commit_async(self, acknowledgements: AcknowledgementMap, deadline_ms: float, now_ms: float) -> None:
        """Send acknowledgements. Their outcomes go to the callback."""
        outcomes = Outcomes(Kind.ASYNC, self._tell)
        sendable, others = self._sort(acknowledgements)
        for node_id, by_partition in sendable.items():
            to_send = self._of_session(node_id, by_partition, others)
            if not to_send:
                continue
            commits = self._commits.setdefault(node_id, NodeRequests())
            if commits.asynchronous is None:
                session = self.sessions[node_id]
                commits.asynchronous = AckRequest(Kind.ASYNC, session, to_send, outcomes, deadline_ms, now_ms, self._backoff_ms)
            else:
                for partition, one in to_send.items():
                    _add(commits.asynchronous.to_send, partition, one)
        for partition, one in others:
            self._fail({partition: one}, error_named("NOT_LEADER_OR_FOLLOWER"))

    def close(self, acknowledgements: AcknowledgementMap, deadline_ms: float, now_ms: float) -> None:
        """Send all acknowledgements, and end the sessions. `is_closed` is true when every node has answered."""
        self.is_closing = True
        outcomes = Outcomes(Kind.CLOSE, self._tell)
        sendable, others = self._sort(acknowledgements)
        for node_id, waiting in self._to_send.items():
            for partition, one in waiting.items():
                if self._cluster.node(node_id) is None or self._has_moved(node_id, partition):
                    others.append((partition, one))
                else:
                    _add(sendable.setdefault(node_id, {}), partition, one)
        self._to_send.clear()
        for node_id, session in self.sessions.items():
            to_send = sendable.pop(node_id, {})
            for one in to_send.values():
                self._count_sent(one)
            outcomes.remaining += len(to_send)
            commits = self._commits.setdefault(node_id, NodeRequests())
            commits.close = AckRequest(Kind.CLOSE, session, to_send, outcomes, deadline_ms, now_ms, self._backoff_ms)
        for partition, one in (*others, *(pair for by_partition in sendable.values() for pair in by_partition.items())):
            self._fail({partition: one}, error_named("NOT_LEADER_OR_FOLLOWER"))

    def _sort(self, acknowledgements: AcknowledgementMap) -> tuple[dict[int, AckMap], list[tuple[TopicIdPartition, Acknowledgements]]]:
        """Return acknowledgements (by their node, those of nodes that are gone or don't lead the partition any more)."""
        sendable: dict[int, AckMap] = {}
        others = []
        for partition, (node_id, one) in acknowledgements.items():
            if self._cluster.node(node_id) is None or self._has_moved(node_id, partition):
                others.append((partition, one))
            else:
                sendable.setdefault(node_id, {})[partition] = one
        return sendable, others

    def _of_session(self, node_id: int, by_partition: AckMap, others: list[tuple[TopicIdPartition, Acknowledgements]]) -> AckMap:
        """Return the acknowledgements of partitions in the node's session. The rest is added to `others`."""
        session = self.sessions.get(node_id)
        known = set() if session is None else set(session.partitions.values())
        others += [(partition, one) for partition, one in by_partition.items() if partition not in known]
        found = {partition: one for partition, one in by_partition.items() if partition in known}
        for one in found.values():
            self._count_sent(one)
        return found

    def _send_commits(self, now_ms: float) -> list[Outgoing]:
        requests: list[Outgoing] = []
        for node_id, commits in self._commits.items():
            if node_id in self._busy:
                continue
            is_clear = commits.asynchronous is None or self._send_commit(requests, node_id, commits.asynchronous, now_ms)
            if not is_clear or node_id in self._busy:
                continue
            waiting = commits.synchronous or (() if commits.close is None else (commits.close,))
            for one in waiting:
                if node_id not in self._busy:
                    self._send_commit(requests, node_id, one, now_ms)
        return requests

    def _send_commit(self, requests: list[Outgoing], node_id: int, commit: AckRequest, now_ms: float) -> bool:
        """Send a commit if it is due. Returns False if it has to be sent later."""
        if not commit.is_open:
            return True
        if commit.has_expired(now_ms):
            for acknowledgements in commit.to_repeat.values():
                self._count_failed(acknowledgements)
            commit.expire(now_ms)
            return True
        if not commit.may_send(now_ms):
            return False
        if commit.kind is Kind.CLOSE:
            commit.session.close()
        for partition, acknowledgements in commit.waiting.items():
            commit.session.add(partition, acknowledgements)
        message = commit.session.acknowledge_request(self._limits.group_id)
        node = self._cluster.node(node_id)
        if message is None:
            commit.fail_waiting(error_named("NOT_LEADER_OR_FOLLOWER"), now_ms)
            return False
        if node is None:
            return False
        self._busy.add(node_id)
        commit.sent()
        versions = _ONLY_VERSION_2 if message.is_renew_ack else None
        requests.append(
            Outgoing(node, message, lambda answer, later_ms: self._answered(node_id, message, commit, answer, later_ms), versions)
        )
        return True

    def _answered(
        self, node_id: int, request: ShareAcknowledgeRequest, commit: AckRequest, answer: Message | ApiError, now_ms: float
    ) -> None:
        self._busy.discard(node_id)
        if commit.kind is Kind.CLOSE:
            self.sessions.pop(node_id, None)
        if isinstance(answer, ApiError):
            commit.session.failed()
            commit.failed(now_ms)
            for partition, acknowledgements in list(commit.in_flight.items()):
                self._count_failed(acknowledgements)
                commit.answered(partition, as_kafka(answer), may_renew=request.is_renew_ack, lock_timeout_ms=None)
            commit.finish(now_ms)
            return
        assert isinstance(answer, ShareAcknowledgeResponse)
        error = by_code(answer.error_code)
        if commit.kind is not Kind.CLOSE and not commit.session.acknowledged(error.name):
            commit.failed(now_ms)
            if error.retriable:
                commit.repeat_all()
            else:
                commit.fail_in_flight(error_named(error.name))
                commit.finish(now_ms)
            return
        self._acknowledged(request, commit, answer, now_ms)

    def _acknowledged(self, request: ShareAcknowledgeRequest, commit: AckRequest, answer: ShareAcknowledgeResponse, now_ms: float) -> None:
        lock_timeout_ms = answer.acquisition_lock_timeout_ms if answer.acquisition_lock_timeout_ms > 0 else None
        leaders: dict[TopicPartition, Leader] = {}
        repeats = False
        for topic in answer.responses:
            for one in topic.partitions:
                partition = self._look_up(topic.topic_id, one.partition_index)
                if partition is None:
                    continue
                error = by_code(one.error_code)
                if commit.kind is not Kind.CLOSE:
                    _note_leader(leaders, partition, one, _GONE)
                    if error.retriable and error.name not in _GONE:
                        repeats = commit.repeat(partition) or repeats
                        continue
                failure = None if error.name == "NONE" else error_named(error.name)
                if failure is not None and partition in commit.in_flight:
                    self._count_failed(commit.in_flight[partition])
                is_locked = failure is None or commit.kind is Kind.CLOSE
                timeout_ms = lock_timeout_ms if is_locked else None
                commit.answered(partition, failure, may_renew=request.is_renew_ack, lock_timeout_ms=timeout_ms)
        if repeats:
            commit.failed(now_ms)
            commit.fail_in_flight(error_named("INVALID_RECORD_STATE", "the broker's answer does not mention these records"))
        else:
            commit.succeeded()
            commit.finish(now_ms)
        self._take_leaders(leaders, answer.node_endpoints)

    # helpers

    def _has_moved(self, node_id: int, partition: TopicIdPartition) -> bool:
        """Whether another node leads a partition. Without a leader, this is not known."""
        leader = self._cluster.leader(TopicPartition(partition.topic, partition.partition))
        if leader is None:
            self._cluster.want()
            return False
        return leader.id != node_id

    def _count_sent(self, acknowledgements: Acknowledgements) -> None:
        if self._metrics is not None:
            self._metrics.acknowledging(len(acknowledgements))

    def _count_failed(self, acknowledgements: Acknowledgements) -> None:
        if self._metrics is not None:
            self._metrics.not_acknowledged(len(acknowledgements))

    def _fail_sent(self, acknowledgements: AckMap, error: KafkaError, *, may_renew: bool) -> None:
        """Fail acknowledgements that were sent with a fetch."""
        for one in acknowledgements.values():
            self._count_failed(one)
        self._fail(acknowledgements, error, may_renew=may_renew)

    def _fail(self, acknowledgements: AckMap, error: KafkaError, *, may_renew: bool = True) -> None:
        for partition, one in acknowledgements.items():
            one.complete(error)
            self._tell(Completed({partition: one}, may_renew, None))

    def _tell(self, completed: Completed) -> None:
        if self.has_callback or completed.may_renew:
            self.completed.append(completed)

    def _look_up(self, topic_id: bytes, partition: int) -> TopicIdPartition | None:
        name = self._cluster.topic_name(topic_id) or self._names.pop((topic_id, partition), None)
        return None if name is None else TopicIdPartition(topic_id, partition, name)

    def _take_leaders(self, leaders: dict[TopicPartition, Leader], nodes: Iterable[AckNodeEndpoint | FetchNodeEndpoint]) -> None:
        if leaders:
            self._cluster.moved(leaders, [Node(one.node_id, one.host, one.port, one.rack) for one in nodes])


def _add(known: AckMap, partition: TopicIdPartition, acknowledgements: Acknowledgements) -> None:
    if partition in known:
        known[partition].merge(acknowledgements)
    else:
        known[partition] = acknowledgements


def _note_leader(
    leaders: dict[TopicPartition, Leader], partition: TopicIdPartition, data: AckPartitionData | FetchPartitionData, errors: tuple[str, ...]
) -> None:
    """Note the leader that comes with one of these errors."""
    leader = data.current_leader
    if data.error_code and by_code(data.error_code).name in errors and leader.leader_id != -1 and leader.leader_epoch != -1:
        leaders[TopicPartition(partition.topic, partition.partition)] = Leader(leader.leader_id, leader.leader_epoch)
