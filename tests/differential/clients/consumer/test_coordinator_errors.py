"""Commits, committed offsets and the look-up of the coordinator after every error code, beside Kafka's ConsumerCoordinator.

Both have sent the same request when they get the same answer. Then both must have the same outcome: success, an error that a retry may
heal, or one that ends the call. Both must have lost the coordinator, or not, and must be in the same generation.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from kops.client.consumer.errors import FencedInstanceIdError
from kops.client.consumer.groups.calls import GroupMembership
from kops.client.consumer.groups.classic import ClassicGroup
from kops.client.consumer.groups.commits import Commits
from kops.client.consumer.groups.coordinator import Coordinator
from kops.client.consumer.options import ConsumerOptions
from kops.client.consumer.parts.requests import Outcome, Outgoing
from kops.client.consumer.records import OffsetAndMetadata
from kops.client.errors import KafkaError
from kops.client.groups.membership import State
from kops.client.node import Node
from kops.protocol import errors
from kops.protocol.declaration import Message
from kops.protocol.messages import FindCoordinatorResponse, LeaveGroupResponse, OffsetCommitResponse, OffsetFetchResponse
from kops.protocol.messages.find_coordinator_response import Coordinator as Found
from kops.protocol.messages.offset_commit_response import OffsetCommitResponsePartition, OffsetCommitResponseTopic
from kops.protocol.messages.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kops.records.log_offsets import TopicPartition
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.classic_twins import ClassicTwins
from tests.support.kafka.twins.java_coordinators import KAFKA, JavaCoordinators
from tests.support.kafka.twins.java_members import TimerClock

CODES = tuple(one.code for one in errors.ERRORS)
KEY = TopicPartition("t", 1)
NODE = Node(7, "h", 9)
START_MS = 1_700_000_000_000
MEMBERSHIPS = dict(zip(("DEFAULT", "LEAVE_GROUP", "REMAIN_IN_GROUP"), GroupMembership, strict=True))
OWN_NAMES = {"COMMIT_FAILED": "CommitFailedException", "UNKNOWN_SERVER_ERROR": "KafkaException"}


class Result(NamedTuple):
    """What became of a call."""

    error: str
    is_retriable: bool
    has_coordinator: bool
    generation: str


class Pair:
    """Two members of a group, with the parts that commit and fetch offsets."""

    def __init__(self, oracle: Oracle, java: JavaCoordinators, clock: TimerClock, seed: int) -> None:
        self.java, self.clock = java, clock
        self.twins = ClassicTwins(java, clock, random.Random(seed))
        self.twins.settle()
        self.theirs = self.twins.theirs
        settings: dict[str, object] = {"bootstrap.servers": "h:9", "group.id": "g", "enable.auto.commit": False}
        if self.twins.instance_id is not None:
            settings["group.instance.id"] = self.twins.instance_id
        options = ConsumerOptions.of(settings)
        group: Any = ClassicGroup.__new__(ClassicGroup)
        group._membership = self.twins.ours
        unused: Any = None
        self.coordinator = Coordinator(options, unused, unused, lambda: 0.5)
        self.coordinator.node = NODE
        self.commits = Commits(options, self.coordinator, unused, clock.now_ms)
        group._parts = SimpleNamespace(coordinator=self.coordinator)
        self.group = self.commits.member = group
        maps = oracle.jvm.java.util
        key = java.make("common.TopicPartition", KEY.topic, KEY.partition)
        self.their_offsets = maps.HashMap()
        self.their_offsets.put(key, java.make("clients.consumer.OffsetAndMetadata", java.long(5)))
        self.their_keys = maps.HashSet([key])

    def is_stable(self) -> bool:
        """Return whether both can be used again."""
        return (
            self.twins.ours.state is State.STABLE and not self.theirs.coordinator.coordinatorUnknown() and self.coordinator.node is not None
        )

    def begin(self, method: str, argument: Any, outcome: Outcome) -> tuple[Any, Any, Outgoing]:
        """Let both send a request. Returns Kafka's future, its callback and our request."""
        future = self.theirs.call("ConsumerCoordinator", method, self.theirs.coordinator, argument)
        self.theirs.client.pollNoWakeup()
        (request,) = self.theirs.requests()
        (mine,) = self.coordinator.turn(self.clock.now_ms)
        assert not outcome.is_done
        assert repr(mine.message) == repr(request.message)
        return future, request.callback, mine

    def end(self, future: Any, callback: Any, mine: Outgoing, outcome: Outcome, answer: Message) -> tuple[Result, Result]:
        """Answer both. Returns Kafka's result and ours."""
        self.theirs.answer(callback, answer)
        self.theirs.client.pollNoWakeup()
        mine.answered(answer, self.clock.now_ms)
        assert future.isDone()
        assert outcome.is_done
        generation = self.theirs.generation().rpartition(", protocol")[0]
        error = "" if future.succeeded() else str(future.exception().getClass().getSimpleName())
        theirs = Result(error, bool(error) and bool(future.isRetriable()), not self.theirs.coordinator.coordinatorUnknown(), generation)
        member = self.twins.ours
        own = f"Generation{{generationId={member.generation_id}, memberId='{member.member_id}'"
        failed = outcome.error
        assert failed is None or isinstance(failed, KafkaError)
        retriable = failed is not None and failed.retriable
        return theirs, Result(name_of(failed), retriable, self.coordinator.node is not None, own)


def name_of(error: KafkaError | None) -> str:
    """Return Kafka's class."""
    if error is None:
        return ""
    return (
        OWN_NAMES.get(error.name)
        or {"CommitFailedError": "CommitFailedException"}.get(type(error).__name__)
        or errors.by_name(error.name).exception
    )


def check(theirs: Result, mine: Result, what: str) -> None:
    """Compare two results. Where Kafka has only its general exception, kops names the code."""
    if theirs.error == "KafkaException":
        assert mine.error, what
        mine = mine._replace(error="KafkaException")
    assert mine == theirs, what


@pytest.fixture
def pairs(oracle: Oracle) -> Callable[[], Pair]:
    """A function that returns a pair of stable members."""
    java = JavaCoordinators(oracle)
    clock = TimerClock(java, START_MS)
    made: list[Pair] = []

    def get() -> Pair:
        if not made or not made[-1].is_stable():
            made.append(Pair(oracle, java, clock, len(made)))
        return made[-1]

    return get


def committed(code: int) -> OffsetCommitResponse:
    """Return an answer with this error."""
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic("t", partitions=[OffsetCommitResponsePartition(1, code)])])


def fetched(code: int, group_code: int) -> OffsetFetchResponse:
    """Return an answer with an error of the partition, or of the group."""
    rows = [OffsetFetchResponsePartitions(1, -1 if code else 9, -1, "", code)]
    topics = [] if group_code else [OffsetFetchResponseTopics("t", partitions=rows)]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", topics, group_code)])


@pytest.mark.slow
@pytest.mark.parametrize("meanwhile", ["nothing", "a rebalance begins", "a rebalance"])
def test_errors_of_commits(pairs: Callable[[], Pair], meanwhile: str) -> None:
    """The answer comes in the generation of the commit, in the rebalance after it, or in the next generation."""
    for code in CODES:
        pair = pairs()
        outcome = pair.commits.commit({KEY: OffsetAndMetadata(5)}, pair.clock.now_ms + 1000, retries=False)
        sent = pair.begin("sendOffsetCommitRequest", pair.their_offsets, outcome)
        if meanwhile != "nothing":
            pair.twins.enforce()
            pair.twins.run()
        if meanwhile == "a rebalance":
            pair.twins.settle()
        theirs, mine = pair.end(*sent, outcome, committed(code))
        check(theirs, mine, f"{errors.by_code(code).name}: {theirs}")
        if meanwhile == "a rebalance begins" and theirs.has_coordinator and theirs.error == "KafkaException":
            pair.twins.settle()


@pytest.mark.parametrize("is_asynchronous", [False, True], ids=["synchronous", "asynchronous"])
def test_a_fenced_commit(pairs: Callable[[], Pair], is_asynchronous: bool) -> None:
    """A poll tells the program that its instance id is fenced only if an asynchronous commit has shown it."""
    pair = pairs()
    outcome = pair.commits.commit({KEY: OffsetAndMetadata(5)}, pair.clock.now_ms + 1000, retries=not is_asynchronous)
    coordinator = pair.theirs.coordinator
    if is_asynchronous:
        coordinator.commitOffsetsAsync(pair.their_offsets, None)
    else:
        pair.theirs.call("ConsumerCoordinator", "sendOffsetCommitRequest", coordinator, pair.their_offsets)
    pair.theirs.client.pollNoWakeup()
    (request,) = pair.theirs.requests()
    (mine,) = pair.coordinator.turn(pair.clock.now_ms)
    answer = committed(errors.by_name("FENCED_INSTANCE_ID").code)
    pair.theirs.answer(request.callback, answer)
    pair.theirs.client.pollNoWakeup()
    mine.answered(answer, pair.clock.now_ms)
    is_fenced = bool(pair.theirs.field("asyncCommitFenced", "ConsumerCoordinator").get())
    assert is_fenced is is_asynchronous
    assert (pair.twins.ours._error is not None) is is_fenced
    assert isinstance(outcome.error, FencedInstanceIdError)


@pytest.mark.parametrize("is_group", [False, True], ids=["partition", "group"])
def test_errors_of_committed_offsets(pairs: Callable[[], Pair], is_group: bool) -> None:
    for code in CODES:
        pair = pairs()
        outcome = pair.commits.fetch([KEY], pair.clock.now_ms + 1000)
        sent = pair.begin("sendOffsetFetchRequest", pair.their_keys, outcome)
        answer = fetched(0, code) if is_group else fetched(code, 0)
        future, callback, mine = sent
        what = f"{errors.by_code(code).name}"
        pair.theirs.answer(callback, answer)
        pair.theirs.client.pollNoWakeup()
        mine.answered(answer, pair.clock.now_ms)
        # A retriable error leaves our call waiting.
        is_retried = bool(future.failed()) and bool(future.isRetriable())
        assert is_retried is not outcome.is_done, what
        assert (outcome.error is None) is (is_retried or bool(future.succeeded())), what
        assert bool(pair.theirs.coordinator.coordinatorUnknown()) is (pair.coordinator.node is None), what
        if outcome.error is not None:
            theirs = str(future.exception().getClass().getSimpleName())
            assert theirs in ("KafkaException", name_of(outcome.error)), what  # type: ignore[arg-type]
        pair.coordinator.withdraw([outcome])


def test_errors_of_the_look_up(pairs: Callable[[], Pair]) -> None:
    """A retriable error is tried again. Any other one is the next error of the program."""
    for code in CODES:
        pair = pairs()
        future = pair.theirs.call(
            "AbstractCoordinator", "sendFindCoordinatorRequest", pair.theirs.coordinator, pair.java.make("common.Node", 7, "h", 9)
        )
        pair.theirs.client.pollNoWakeup()
        (request,) = pair.theirs.requests()
        answer = FindCoordinatorResponse(coordinators=[Found("g", 1, "h", 9, code)])
        pair.theirs.answer(request.callback, answer)
        pair.theirs.client.pollNoWakeup()
        pair.coordinator.node = None
        pair.coordinator._found(answer, pair.clock.now_ms)
        what = errors.by_code(code).name
        assert (pair.coordinator.node is not None) is bool(future.succeeded()), what
        fatal = pair.coordinator.take_error()
        if future.failed():
            assert (fatal is None) is bool(future.isRetriable()), what
        if fatal is not None:
            assert fatal.name == what
        pair.coordinator.node = NODE


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DEFAULT", "LEAVE_GROUP", "REMAIN_IN_GROUP"])
def test_leaving(oracle: Oracle, name: str) -> None:
    """Dynamic and static members send the same request, or none, as the program wants it (KIP-1092). The answer changes nothing."""
    java = JavaCoordinators(oracle)
    clock = TimerClock(java, START_MS)
    wanted = getattr(oracle.java_class(f"{KAFKA}clients.consumer.CloseOptions$GroupMembershipOperation"), name)
    seen, reason = set(), "r" * 300
    for seed in range(8):
        pair = Pair(oracle, java, clock, seed)
        is_static = pair.twins.instance_id is not None
        if is_static in seen:
            continue
        seen.add(is_static)
        pair.theirs.coordinator.maybeLeaveGroup(wanted, reason)
        pair.theirs.client.pollNoWakeup()
        theirs = [one.message for one in pair.theirs.requests()]
        mine = pair.group.leave(MEMBERSHIPS[name], reason, clock.now_ms)
        assert [repr(one.message) for one in mine] == [repr(one) for one in theirs]
        assert bool(mine) is (name == "LEAVE_GROUP" or (name == "DEFAULT" and not is_static))
        for one in mine:
            one.answered(LeaveGroupResponse(error_code=errors.by_name("UNKNOWN_MEMBER_ID").code), clock.now_ms)
    assert seen == {False, True}
