"""The share consumer's core in a dialogue with scripted brokers: how it gets its records, and which errors a poll raises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kops.client.errors import InvalidTopicError, KafkaError
from kops.client.node import Node
from kops.client.share.core.acknowledgements import AcknowledgeType
from kops.client.share.core.consumer import ShareCore
from kops.client.share.core.options import ShareOptions
from kops.client.share.core.records import Deserializers
from kops.errors import ApiError, UsageError
from kops.protocol.connections.node_versions import FinalizedFeatures
from kops.protocol.declaration import Message
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    FindCoordinatorResponse,
    MetadataResponse,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from kops.protocol.messages.find_coordinator_response import Coordinator
from kops.protocol.messages.metadata_response import MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from kops.protocol.messages.share_acknowledge_response import PartitionData as Acknowledged
from kops.protocol.messages.share_acknowledge_response import ShareAcknowledgeTopicResponse
from kops.protocol.messages.share_fetch_response import AcquiredRecords, PartitionData, ShareFetchableTopicResponse
from kops.protocol.messages.share_group_heartbeat_response import Assignment, TopicPartitions
from kops.records import Record, build_batch

TOPIC_ID = bytes([7] * 16)


class Links:
    """Connections that are always up."""

    def is_ready(self, node: Node) -> bool:
        return True

    def load(self, node: Node) -> int:
        return 0

    def retry_ms(self, node: Node) -> float:
        return 50.0

    def least_loaded(self, nodes: Iterable[Node]) -> Node | None:
        return next(iter(nodes), None)

    def is_failing(self, node: Node) -> bool:
        return False

    def latest_version(self, node: Node, api_key: int) -> int:
        return -1

    def features(self) -> FinalizedFeatures:
        return FinalizedFeatures(-1, {})


class Talk:
    """A core with scripted brokers. `answers` has the answers that differ from those of a healthy broker."""

    def __init__(self, **settings: object) -> None:
        self.now_ms = 1000.0
        self.leader = 1
        self.records = 3
        self.answers: dict[str, Message | ApiError] = {}
        self.sent: list[tuple[int, Message]] = []
        given = {"bootstrap.servers": "x:1", "group.id": "g", "share.acknowledgement.mode": "explicit", **settings}
        plain = Deserializers(lambda topic, headers, data: data, lambda topic, headers, data: data)
        self.core = ShareCore(ShareOptions.of(given), [("x", 1)], Links(), lambda: 0.5, plain, "AAAAAAAAAAAAAAAAAAAAAQ", self.now_ms)
        self.core.subscribe(["t"])

    def poll(self) -> list[Any]:
        """Poll until everything was asked and answered."""
        self.core.begin_poll()
        for _ in range(20):
            records = self.core.collect(self.now_ms)
            if records:
                return list(records)
            self.turn()
        return []

    def turn(self) -> None:
        self.now_ms += 100
        for request in self.core.turn(self.now_ms)[0]:
            self.sent.append((request.node.id, request.message))
            name = type(request.message).__name__.removesuffix("Request")
            request.answered(self.answers.get(name) or getattr(self, f"answer_{name}")(request.message), self.now_ms)

    def epochs(self) -> list[int]:
        """Return the session epochs of the fetches."""
        return [message.share_session_epoch for _, message in self.sent if isinstance(message, ShareFetchRequest)]

    def names(self) -> list[str]:
        return [type(message).__name__.removesuffix("Request") for _, message in self.sent]

    def answer_Metadata(self, request: Message, error: str = "NONE") -> Message:  # noqa: N802  # the name of the request
        partition = MetadataResponsePartition(0, 0, self.leader, 0, [1, 2], [1, 2], [])
        topic = MetadataResponseTopic(by_name(error).code, "t", TOPIC_ID, False, [partition] if error == "NONE" else [])
        return MetadataResponse(brokers=[MetadataResponseBroker(1, "a", 1), MetadataResponseBroker(2, "b", 2)], topics=[topic])

    def answer_FindCoordinator(self, request: Message) -> Message:  # noqa: N802
        return FindCoordinatorResponse(coordinators=[Coordinator("g", 2, "b", 2)])

    def answer_ShareGroupHeartbeat(self, request: Any) -> Message:  # noqa: N802
        if request.member_epoch < 0:
            return ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=-1, heartbeat_interval_ms=1000)
        assignment = Assignment([TopicPartitions(TOPIC_ID, [0])]) if request.member_epoch == 0 else None
        return ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=1, heartbeat_interval_ms=1000, assignment=assignment)

    def answer_ShareFetch(self, request: Any) -> Message:  # noqa: N802
        found = [Record(offset, 1, "CreateTime", None, b"v") for offset in range(self.records)]
        data = PartitionData(0, records=bytes(build_batch(found)) if found else b"")
        data.acquired_records = [AcquiredRecords(0, self.records - 1, 1)] if found else []
        return ShareFetchResponse(acquisition_lock_timeout_ms=30_000, responses=[ShareFetchableTopicResponse(TOPIC_ID, [data])])

    def answer_ShareAcknowledge(self, request: Any) -> Message:  # noqa: N802
        return ShareAcknowledgeResponse(responses=[ShareAcknowledgeTopicResponse(TOPIC_ID, [Acknowledged(0)])] if request.topics else [])

    def acknowledge_all(self) -> None:
        for offset in range(self.records):
            self.core.acknowledge("t", 0, offset, AcknowledgeType.ACCEPT, is_record=True)


def test_from_the_first_poll_to_the_last_word() -> None:
    talk = Talk()
    records = talk.poll()
    assert [(one.offset, one.delivery_count) for one in records] == [(0, 1), (1, 1), (2, 1)]
    assert talk.core.lock_timeout_ms == 30_000
    assert talk.names()[-1] == "ShareFetch"
    assert {"FindCoordinator", "Metadata", "ShareGroupHeartbeat"} <= set(talk.names())
    heartbeats = {node for node, message in talk.sent if type(message).__name__ == "ShareGroupHeartbeatRequest"}
    assert heartbeats == {2**31 - 1 - 2}  # a separate connection to node 2
    with pytest.raises(UsageError, match="must be acknowledged before"):
        talk.poll()
    talk.acknowledge_all()
    commit = talk.core.commit_sync(talk.now_ms + 1000, talk.now_ms)
    assert commit is not None
    talk.turn()
    assert commit.outcome is not None
    assert list(commit.outcome.values()) == [None]
    talk.core.begin_close(talk.now_ms + 1000, talk.now_ms)
    talk.turn()
    talk.turn()
    assert talk.core.has_closed_sessions
    talk.core.leave_at_close()
    talk.turn()
    talk.turn()
    assert talk.core.has_left
    assert [message.member_epoch for _, message in talk.sent if isinstance(message, ShareGroupHeartbeatRequest)][-1] == -1


def test_acknowledgements_of_a_leader_that_has_changed_fail() -> None:
    talk = Talk()
    assert talk.poll()
    talk.acknowledge_all()
    talk.leader = 2
    talk.core.metadata.want()
    talk.turn()
    commit = talk.core.commit_sync(talk.now_ms + 1000, talk.now_ms)
    assert commit is not None
    assert commit.outcome is not None
    assert [error and error.name for error in commit.outcome.values()] == ["NOT_LEADER_OR_FOLLOWER"]


def test_a_topic_that_is_not_allowed_is_raised_once() -> None:
    talk = Talk()
    talk.answers["Metadata"] = talk.answer_Metadata(MetadataResponse(), "INVALID_TOPIC_EXCEPTION")
    with pytest.raises(InvalidTopicError):
        talk.poll()
    assert talk.core.take_last_error() is None


def test_a_cluster_without_share_groups_is_raised() -> None:
    talk = Talk()
    talk.answers["ShareGroupHeartbeat"] = ApiError("UNSUPPORTED_VERSION", "no")
    with pytest.raises(KafkaError, match="does not support the share group protocol"):
        talk.poll()


def test_a_fetch_that_is_not_answered_opens_a_new_session() -> None:
    talk = Talk()
    talk.records = 0
    talk.poll()
    assert talk.epochs()[:3] == [0, 1, 2]
    talk.answers["ShareFetch"] = ApiError("NETWORK_EXCEPTION", "gone")
    talk.turn()
    talk.turn()
    assert talk.epochs()[-1] == 0
    assert talk.names()[-1] == "Metadata"  # another node may lead now
