"""The commit before a rebalance: while it is tried again, no other automatic commit overtakes it or is overtaken by it. The committed
offsets of the first positions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kops.client.consumer.groups.commits import Commits
from kops.client.consumer.groups.coordinator import Coordinator
from kops.client.consumer.options import ConsumerOptions
from kops.client.consumer.parts.metadata import ConsumerMetadata
from kops.client.consumer.parts.requests import FOREVER, Outgoing
from kops.client.consumer.parts.state import Kind, Position, Subscriptions
from kops.client.consumer.records import OffsetAndMetadata
from kops.client.metadata import Leader
from kops.client.node import Node
from kops.protocol.errors import by_name
from kops.protocol.messages import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchResponse
from kops.protocol.messages.offset_commit_response import OffsetCommitResponsePartition, OffsetCommitResponseTopic
from kops.protocol.messages.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kops.records.log_offsets import TopicPartition

KEY = TopicPartition("t", 0)


class NoLinks:
    """Connections to nodes that can't be reached."""

    def least_loaded(self, nodes: Iterable[Node]) -> Node | None:
        return None


class Talk:
    """The commits of a consumer that has one partition, and their coordinator, which a test answers for."""

    def __init__(self, **settings: str) -> None:
        options = ConsumerOptions.of(
            {
                **settings,
                "bootstrap.servers": "x:1",
                "group.id": "g",
                "auto.commit.interval.ms": 100,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 10,
            }
        )
        links: Any = NoLinks()
        self.subscriptions = Subscriptions(options.reset)
        metadata = ConsumerMetadata([("x", 1)], options, lambda: 0.5, self.subscriptions)
        self.coordinator = Coordinator(options, metadata, links, lambda: 0.5)
        self.coordinator.node = Node(1, "x", 1)
        self.commits = Commits(options, self.coordinator, self.subscriptions, 0)
        self.subscriptions.set_kind(Kind.ASSIGNED)
        self.subscriptions.assign([KEY])
        self.consume(5)

    def consume(self, offset: int) -> None:
        """Let the program have all records before an offset."""
        self.subscriptions.state(KEY).seek(Position(offset, None, Leader(1, 5)))

    def sent(self, now_ms: float) -> list[tuple[int, Outgoing]]:
        """Return what is committed now."""
        found = []
        for one in self.coordinator.turn(now_ms):
            assert isinstance(one.message, OffsetCommitRequest)
            found.append((one.message.topics[0].partitions[0].committed_offset, one))
        return found

    def answer(self, request: Outgoing, error: str, now_ms: float) -> None:
        """Answer a commit."""
        row = OffsetCommitResponsePartition(partition_index=0, error_code=by_name(error).code)
        request.answered(OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[row])]), now_ms)


def test_a_later_attempt_has_the_latest_positions() -> None:
    talk = Talk()
    outcome = talk.commits.commit_before_rebalance(10_000)
    [(offset, request)] = talk.sent(0)
    assert offset == 5
    talk.answer(request, "COORDINATOR_LOAD_IN_PROGRESS", 1)
    talk.consume(9)  # but the program has not polled again, so the records may not be processed yet
    [(offset, request)] = talk.sent(50)
    assert offset == 5
    talk.answer(request, "COORDINATOR_LOAD_IN_PROGRESS", 51)
    assert talk.commits.wake_ms() == FOREVER
    talk.commits.auto_commit(200)  # the interval is over
    [(offset, request)] = talk.sent(200)
    assert offset == 9
    assert not outcome.is_done
    talk.answer(request, "NONE", 201)
    assert outcome.is_done and outcome.error is None
    talk.consume(12)
    talk.commits.auto_commit(300)
    assert [offset for offset, _ in talk.sent(300)] == [12]


def test_one_that_fails_ends_the_wait() -> None:
    talk = Talk()
    outcome = talk.commits.commit_before_rebalance(1_000)
    [(_, request)] = talk.sent(0)
    talk.answer(request, "GROUP_AUTHORIZATION_FAILED", 1)
    assert outcome.is_done and outcome.error is not None
    talk.commits.auto_commit(300)
    assert len(talk.sent(300)) == 1


def test_nothing_to_commit_is_a_success() -> None:
    talk = Talk()
    talk.subscriptions.assign([])
    outcome = talk.commits.commit_before_rebalance(1_000)
    assert outcome.is_done and outcome.error is None and not talk.sent(0)
    talk.subscriptions.assign([KEY])
    talk.consume(5)
    talk.commits.auto_commit(300)
    assert len(talk.sent(300)) == 1


def test_an_unknown_topic_holds_up_the_first_positions_for_the_time_of_a_call() -> None:
    """The coordinator knows one of two topics. A coordinator that does not answer is asked again."""
    talk = Talk(**{"group.protocol": "consumer"})
    other = TopicPartition("u", 0)
    talk.subscriptions.assign([])
    talk.subscriptions.assign([KEY, other])
    known = OffsetFetchResponseTopics("u", partitions=[OffsetFetchResponsePartitions(0, 7)])
    unknown = OffsetFetchResponseTopics("t", partitions=[OffsetFetchResponsePartitions(0, -1, error_code=3)])
    answer = OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", [known, unknown])])
    timeout_ms = 60_000
    assert talk.commits.initialize(0) is None
    talk.coordinator.lose("gone")
    talk.coordinator.turn(timeout_ms)
    assert talk.commits.initialize(timeout_ms) is None
    assert talk.commits.initialize(timeout_ms) is None
    talk.coordinator.node = Node(1, "x", 1)
    [request] = talk.coordinator.turn(timeout_ms)
    request.answered(answer, timeout_ms)
    assert talk.commits.initialize(timeout_ms) is None
    [request] = talk.coordinator.turn(2 * timeout_ms - 1)
    request.answered(answer, 2 * timeout_ms - 1)
    assert talk.commits.initialize(2 * timeout_ms - 1) == {KEY: None, other: OffsetAndMetadata(7)}
