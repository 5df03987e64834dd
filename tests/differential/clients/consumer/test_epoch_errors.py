"""Commits and committed offsets of a member with the consumer protocol after every error code, beside Kafka's CommitRequestManager.

Both have sent the same request when they get the same answer. Then both must have the same outcome, or ask again, and must have lost the
coordinator, or not.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import get_field

from kops.client.consumer.groups.commits import Commits, Identity
from kops.client.consumer.groups.coordinator import Coordinator
from kops.client.consumer.options import ConsumerOptions
from kops.client.consumer.parts.requests import Outcome, Outgoing
from kops.client.consumer.records import OffsetAndMetadata
from kops.client.errors import KafkaError
from kops.client.node import Node
from kops.protocol import errors
from kops.protocol.declaration import ZERO_UUID, Message
from kops.protocol.messages import OffsetCommitResponse, OffsetFetchResponse
from kops.protocol.messages.offset_commit_response import OffsetCommitResponsePartition, OffsetCommitResponseTopic
from kops.protocol.messages.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kops.records.log_offsets import TopicPartition
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import JavaCoordinators
from tests.support.kafka.twins.java_members import JavaMember, TimerClock

KEY = TopicPartition("t", 1)
NODE = Node(7, "h", 9)
PATIENCE_MS = 100_000
TOPIC_ID = bytes([7] * 16)
FAILED = re.compile(r"Completed exceptionally: (?:java\.util\.concurrent\.CompletionException: )?[\w.]+\.(\w+)")
SETTINGS: dict[str, object] = {
    "group_id": "g",
    "instance_id": None,
    "rack": None,
    "server_assignor": None,
    "max_poll_interval_ms": 300_000,
    "auto_commits": False,
    "has_listener": False,
}


class EpochMember:
    """What a membership tells the commits."""

    def __init__(self, member_id: str) -> None:
        self.now = Identity(member_id, 5)

    def identity(self) -> Identity:
        return self.now

    def is_current(self, identity: Identity) -> bool:
        return self.now == identity

    def is_rebalancing(self) -> bool:
        return False

    def is_joining(self) -> bool:
        return False

    def commit_failed(self, name: str, identity: Identity) -> None:
        """Nothing, as in ModernGroup."""


class Pair:
    """Both consumers, in the same epoch."""

    def __init__(self, oracle: Oracle, *, has_ids: bool = False) -> None:
        self.has_ids, self.version = has_ids, 10 if has_ids else 9
        java = self.java = JavaCoordinators(oracle)
        self.clock = TimerClock(java, 1_700_000_000_000)
        self.theirs = JavaMember(java, self.clock, SETTINGS)
        assert self.theirs.commits is not None
        self.manager = self.theirs.commits
        options = ConsumerOptions.of({"bootstrap.servers": "h:9", "group.id": "g", "group.protocol": "consumer"})
        unused: Any = None
        metadata: Any = SimpleNamespace(cluster=SimpleNamespace(topic_ids={KEY.topic: TOPIC_ID} if has_ids else {}, topic_errors={}))
        if has_ids:
            self.theirs.learn_for_consumer({TOPIC_ID: KEY.topic})
        self.coordinator = Coordinator(options, metadata, unused, lambda: 0.5)
        self.commits = Commits(options, self.coordinator, unused, self.clock.now_ms)
        self.member = self.commits.member = EpochMember(self.theirs.member_id)
        self.key = java.make("common.TopicPartition", KEY.topic, KEY.partition)
        self.optional = oracle.jvm.java.util.Optional
        self.offsets = oracle.jvm.java.util.HashMap()
        self.offsets.put(self.key, java.make("clients.consumer.OffsetAndMetadata", java.long(5)))
        self.set_epoch(5)

    def set_epoch(self, epoch: int) -> None:
        """Let the member be in an epoch."""
        self.member.now = Identity(self.theirs.member_id, epoch)
        self.manager.onMemberEpochUpdated(self.optional.of(epoch), self.theirs.member_id)

    def find(self) -> None:
        """Let both know the coordinator."""
        self.coordinator.node = NODE
        while self.theirs.coordinator.coordinator().isEmpty():
            self.clock.now_ms += 1000
            for handler in self.theirs._handlers(self.theirs.coordinator.poll(self.clock.now_ms)):
                self.theirs.found(handler, "NONE")

    def begin(self, outcome: Outcome) -> tuple[Any, Outgoing]:
        """Compare the requests. Returns the handler of Kafka's, and ours."""
        self.clock.now_ms += 1000  # after the pause
        (mine,) = self.coordinator.turn(self.clock.now_ms)
        (unsent,) = get_field(self.manager.poll(self.clock.now_ms), "unsentRequests")
        builder = self.theirs.hidden("NetworkClientDelegate$UnsentRequest", "requestBuilder", unsent)
        assert mine.versions is not None
        version = mine.versions.stop - 1
        assert version == int(builder.latestAllowedVersion()) == self.version
        assert mine.message.encode(version) == self.java.message_bytes(builder.build(self.java.short(version)).data(), version)
        return self.theirs.hidden("NetworkClientDelegate$UnsentRequest", "handler", unsent), mine

    def end(self, handler: Any, mine: Outgoing, answer: Message) -> None:
        """Answer both."""
        self.theirs.answer(handler, answer, self.version)
        mine.answered(answer, self.clock.now_ms)
        assert self.theirs.coordinator.coordinator().isEmpty() is (self.coordinator.node is None)


def outcome_of(future: Any) -> str:
    """Return the name of the exception, "again" or nothing."""
    if not future.isDone():
        return "again"
    found = FAILED.search(str(future.toString()))
    return found[1] if found else ""


def name_of(outcome: Outcome) -> str:
    """Return the same of ours."""
    error = outcome.error
    if not outcome.is_done or error is None:
        return "" if outcome.is_done else "again"
    assert isinstance(error, KafkaError)
    own = {"CommitFailedError": "CommitFailedException", "RetriableCommitFailedError": "RetriableCommitFailedException"}
    return own.get(type(error).__name__) or errors.by_name(error.name).exception


def check(theirs: str, mine: str, what: str) -> None:
    """Compare outcomes. Where Kafka has its general exception, kops has one with the name of the code, or of a failed commit."""
    assert theirs == mine or (theirs == "KafkaException" and mine not in ("", "again")), f"{what}: {theirs}, kops: {mine}"


def topic_fields(*, has_ids: bool) -> tuple[str, bytes]:
    """Return the name and the id of the topic in an answer, which has one of them."""
    return ("", TOPIC_ID) if has_ids else (KEY.topic, ZERO_UUID)


def committed(code: int, *, has_ids: bool) -> OffsetCommitResponse:
    """Return an answer with this error."""
    rows = [OffsetCommitResponsePartition(KEY.partition, code)]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(*topic_fields(has_ids=has_ids), rows)])


def fetched(code: int, group_code: int = 0, *, has_ids: bool) -> OffsetFetchResponse:
    """Return an answer with an error of the partition, or of the group."""
    row = OffsetFetchResponsePartitions(KEY.partition, -1 if code else 9, -1, "", code)
    topics = [] if group_code else [OffsetFetchResponseTopics(*topic_fields(has_ids=has_ids), [row])]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", topics, group_code)])


@pytest.mark.parametrize("epoch", [5, pytest.param(6, marks=pytest.mark.slow)], ids=["its epoch", "a newer epoch"])
@pytest.mark.parametrize(
    ("retries", "has_ids"),
    [
        pytest.param(True, False, marks=pytest.mark.slow),
        pytest.param(False, False, marks=pytest.mark.slow),
        (True, True),
    ],
    ids=["sync", "async", "sync, topic ids"],
)
def test_errors_of_commits(oracle: Oracle, retries: bool, has_ids: bool, epoch: int) -> None:
    """The answer comes in the epoch of the commit or in a newer one. A commit that is sent again succeeds."""
    pair = Pair(oracle, has_ids=has_ids)
    for code in errors.ERRORS:
        pair.set_epoch(5)
        pair.find()
        outcome = pair.commits.commit({KEY: OffsetAndMetadata(5)}, pair.clock.now_ms + PATIENCE_MS, retries=retries)
        deadline = pair.java.long(pair.clock.now_ms + PATIENCE_MS)
        future = pair.manager.commitSync(pair.offsets, deadline) if retries else pair.manager.commitAsync(pair.offsets)
        handler, mine = pair.begin(outcome)
        pair.set_epoch(epoch)
        pair.end(handler, mine, committed(code.code, has_ids=has_ids))
        theirs, ours = outcome_of(future), name_of(outcome)
        if theirs == "RetriableCommitFailedException":  # kops wraps it for the callback
            assert isinstance(outcome.error, KafkaError)
            assert outcome.error.retriable, code.name
        else:
            check(theirs, ours, code.name)
        if theirs == "again":
            pair.find()
            pair.end(*pair.begin(outcome), committed(0, has_ids=has_ids))
            assert outcome_of(future) == name_of(outcome) == "", code.name


@pytest.mark.parametrize(
    ("is_group", "has_ids"),
    [pytest.param(False, False, marks=pytest.mark.slow), (True, False), (False, True)],
    ids=["partition", "group", "topic ids"],
)
def test_errors_of_committed_offsets(oracle: Oracle, is_group: bool, has_ids: bool) -> None:
    """A request that is sent again has the newest epoch, and succeeds."""
    pair = Pair(oracle, has_ids=has_ids)
    for number, code in enumerate(errors.ERRORS):
        pair.find()
        outcome = pair.commits.fetch([KEY], pair.clock.now_ms + PATIENCE_MS)
        future = pair.manager.fetchOffsets(pair.offsets.keySet(), pair.java.long(pair.clock.now_ms + PATIENCE_MS))
        handler, mine = pair.begin(outcome)
        pair.set_epoch(10 + number)
        pair.end(handler, mine, fetched(0, code.code, has_ids=has_ids) if is_group else fetched(code.code, has_ids=has_ids))
        check(outcome_of(future), name_of(outcome), code.name)
        if outcome_of(future) == "again":
            pair.find()
            pair.end(*pair.begin(outcome), fetched(0, has_ids=has_ids))
            assert outcome_of(future) == name_of(outcome) == "", code.name


@pytest.mark.parametrize("name", ["UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"])
def test_committed_offsets_at_the_deadline(oracle: Oracle, name: str) -> None:
    """If there is no time for another attempt, a partition of an unknown topic has no offset. With the time for one, both ask again."""
    pair = Pair(oracle, has_ids=True)
    code = errors.by_name(name).code
    rows = [OffsetFetchResponsePartitions(KEY.partition, -1, -1, "", code), OffsetFetchResponsePartitions(2, 9, -1, "", 0)]
    answer = OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", [OffsetFetchResponseTopics("", TOPIC_ID, rows)])])
    other = pair.java.make("common.TopicPartition", KEY.topic, 2)
    keys = pair.java.oracle.jvm.java.util.HashSet([pair.key, other])
    for left_ms, again in ((60, False), (1100, True), (1, False)):
        pair.find()
        deadline_ms = pair.clock.now_ms + 1000 + left_ms
        outcome = pair.commits.fetch([TopicPartition(KEY.topic, int(one.partition())) for one in keys], deadline_ms)
        future = pair.manager.fetchOffsets(keys, pair.java.long(deadline_ms))
        pair.end(*pair.begin(outcome), answer)
        assert (outcome_of(future) == "again") is (name_of(outcome) == "again") is again, left_ms
        if again:
            pair.end(*pair.begin(outcome), answer)
        found = future.get().toOffsetMapWithNulls()
        theirs = {int(one.getKey().partition()): one.getValue() and int(one.getValue().offset()) for one in found.entrySet()}
        assert theirs == {key.partition: one and one.offset for key, one in outcome.result().items()} == {1: None, 2: 9}
