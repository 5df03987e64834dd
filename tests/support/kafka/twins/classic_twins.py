"""A member of kops with the classic protocol and Kafka's ConsumerCoordinator, which get the same calls, answers and time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from kops.client.groups.assignors import Subscription
from kops.client.groups.consumer_protocol import read_assignment, read_subscription, write_assignment, write_subscription
from kops.client.groups.membership import Divide, FindCoordinator, GiveUp, GroupSettings, Membership, Prepare, Send, State, Take
from kops.client.groups.strategies import make_assignors
from kops.errors import ApiError
from kops.protocol import errors
from kops.protocol.declaration import Message
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kops.protocol.messages.find_coordinator_response import Coordinator
from kops.protocol.messages.join_group_response import JoinGroupResponseMember
from kops.records.log_offsets import TopicPartition
from tests.support.kafka.manual_jvm import ManualClock
from tests.support.kafka.twins.java_classic import INTERVAL_MS, POLL_MS, SESSION_MS, JavaClassicMember
from tests.support.kafka.twins.java_coordinators import KAFKA, JavaCoordinators
from tests.support.kafka.twins.member_twins import same

ASSIGNORS: Final = (("RangeAssignor",), ("StickyAssignor",), ("CooperativeStickyAssignor",), ("RangeAssignor", "CooperativeStickyAssignor"))
TOPICS: Final = {"t": 3, "u": 2, "v": 4}
COORDINATOR: Final = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
LOST: Final = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "FENCED_INSTANCE_ID")
FATAL: Final = ("GROUP_AUTHORIZATION_FAILED", "GROUP_MAX_SIZE_REACHED", "INCONSISTENT_GROUP_PROTOCOL", "INVALID_SESSION_TIMEOUT")
ERRORS: Final = (*COORDINATOR * 3, *LOST * 3, *FATAL, "UNSUPPORTED_VERSION", "UNKNOWN_SERVER_ERROR", "INVALID_GROUP_ID")
QUIET: Final = 2  # after this many polls without a request, nothing is left to do


class ClassicTwins:
    """Both members, and the requests that wait for answers."""

    def __init__(self, java: JavaCoordinators, clock: ManualClock, rng: random.Random) -> None:
        self.rng, self.clock, self.java = rng, clock, java
        self.errors: Sequence[str] = ERRORS
        names = rng.choice(ASSIGNORS)
        self.instance_id, rack = rng.choice((None, None, "i")), rng.choice((None, "r"))
        self.topics = self._some_topics()
        self.theirs = JavaClassicMember(java, clock, names, TOPICS, self.instance_id, rack)
        settings = GroupSettings("g", sorted(self.topics), SESSION_MS, POLL_MS, INTERVAL_MS, 30_000, self.instance_id, rack)
        self.ours = Membership(settings, make_assignors(names), lambda failures: 0)
        self.theirs.subscribe(self.topics)
        self.waiting: list[tuple[Message | None, Message, Any]] = []  # ours (None: a look-up of the coordinator), Kafka's, its callback
        self.generation = 0
        self.seen: Counter[str] = Counter()
        self.trail: list[str] = []

    def _some_topics(self) -> list[str]:
        return self.rng.sample(sorted(TOPICS), self.rng.randrange(1, 4))

    def live(self, steps: int, name: str, errors: Sequence[str]) -> Counter[str]:
        """Run a random life in which answers have these errors, and return what has happened in it."""
        self.errors = errors
        try:
            self.run()
            for _ in range(steps):
                self.step()
        except AssertionError as error:
            error.add_note("\n".join((name, *self.trail[-15:])))
            raise
        return self.seen

    # both do what there is to do

    def run(self) -> None:
        """Let both do everything that they can do now, and check that it is the same."""
        their_requests, their_calls, failed = self._run_theirs()
        ours, calls, error = self._run_ours()
        if _joins_for_metadata(their_requests) and not any(isinstance(one, JoinGroupRequest) for one in ours):
            # In Kafka, the leader watches the metadata. In kops, the consumer watches it and informs the member.
            self.ours.rejoin("cached metadata has changed", keeps_reason=True)
            more = self._run_ours()
            ours, calls, error = ours + more[0], calls + more[1], error or more[2]
        same(calls, their_calls)
        same(error is None, failed is None)
        if error is not None and failed is not None:
            self._compare_errors(error, failed)
        same(sorted(map(comparable, ours), key=repr), sorted((comparable(one.message) for one in their_requests), key=repr))
        for mine in ours:
            place = next(index for index, one in enumerate(their_requests) if type(one.message) is type(mine))
            found = their_requests.pop(place)
            self.waiting.append((mine if not isinstance(mine, FindCoordinatorRequest) else None, found.message, found.callback))
        self._compare()

    def _run_theirs(self) -> tuple[list[Any], list[Any], str | None]:
        requests: list[Any] = []
        failed = None
        for beats in (False, True):
            quiet = 0
            while quiet < QUIET:
                quiet += 1
                self.theirs.fire()
                try:
                    self.theirs.poll()
                except Py4JJavaError as caught:
                    failed = str(caught.java_exception.getClass().getName())
                self.theirs.note()
                if beats and quiet == 1:
                    self.theirs.beat()
                new = self.theirs.requests()
                requests += new
                if self.theirs.is_disconnected():
                    self._disconnect()
                    quiet = 0
                elif new:
                    quiet = 0
        return requests, self.theirs.calls(), failed

    def _disconnect(self) -> None:
        """Kafka's network client cancels the requests in flight to a coordinator that it leaves."""
        for one in [one for one in self.waiting if one[0] is not None]:
            self.waiting.remove(one)
            self.theirs.answer(one[2], None)
            assert one[0] is not None
            self.ours.receive(one[0], ApiError("NETWORK_EXCEPTION", "disconnected"), self.clock.now_ms)

    def _run_ours(self) -> tuple[list[Message], list[Any], ApiError | None]:
        sends: list[Message] = []
        calls: list[Any] = []
        failed = None
        while True:
            try:
                event = self.ours.next_event(self.clock.now_ms)
            except ApiError:
                failed = self.ours.take_error()
                continue
            if event is None:
                return sends, calls, failed
            self.seen[type(event).__name__] += 1
            if isinstance(event, Send):
                sends.append(event.message)
            elif isinstance(event, FindCoordinator):
                sends.append(FindCoordinatorRequest(coordinator_keys=["g"]))
            elif isinstance(event, Prepare):
                if event.revoked or not (event.is_lost or self.ours._is_cooperative):
                    calls.append(("onPartitionsLost" if event.is_lost else "onPartitionsRevoked", sorted(event.revoked)))
                self.ours.prepared(event.revoked)
            elif isinstance(event, Divide):
                self.ours.divide(event.members, {topic: [frozenset()] * count for topic, count in TOPICS.items()})
            elif isinstance(event, GiveUp):
                calls.append(("onPartitionsRevoked", sorted(event.keys)))
            else:
                assert isinstance(event, Take)
                calls.append(("onPartitionsAssigned", sorted(event.keys)))

    def _compare_errors(self, ours: ApiError, theirs: str) -> None:
        """Check that the errors are the same, if Kafka's exception has a code."""
        self.seen[f"failed {ours.name}"] += 1
        if theirs.startswith(f"{KAFKA}common.errors."):
            same(ours.name, errors.by_exception(theirs).name)

    def _compare(self) -> None:
        text = f"Generation{{generationId={self.ours.generation_id}, memberId='{self.ours.member_id}'"
        same(text, self.theirs.generation().rpartition(", protocol")[0])
        same(self.ours.state is State.STABLE, self.theirs.state == "STABLE")
        same(sorted(map(tuple, self.ours.owned)), self.theirs.owned())

    # what happens to both

    def step(self) -> None:
        """Let one random thing happen to both."""
        choices = ["advance"] * 3 + ["answer"] * 6 * bool(self.waiting) + ["subscribe"] * (self.rng.random() < 0.2)
        choices += ["enforce"] * (self.ours.state is State.STABLE)
        chosen = self.rng.choice(choices)
        self.trail.append(f"{self.clock.now_ms % 10_000_000} {chosen} {self.ours.state.name}")
        getattr(self, chosen)()
        self.run()

    def advance(self) -> None:
        """Let time pass."""
        self.clock.now_ms += self.rng.choice((1, 500, INTERVAL_MS, INTERVAL_MS, 20_000))

    def subscribe(self) -> None:
        """Subscribe to other topics."""
        self.topics = self._some_topics()
        self.theirs.subscribe(self.topics)
        if sorted(self.topics) != list(self.ours.settings.topics):
            self.ours.settings = replace(self.ours.settings, topics=sorted(self.topics))

    def enforce(self) -> None:
        """Let the application request a rebalance."""
        reason = "r" * self.rng.choice((5, 300))
        self.theirs.coordinator.requestRejoin(reason)
        self.ours.rejoin(reason)

    def answer(self) -> None:
        """Answer a request, or lose the connection."""
        mine, sent, callback = self.waiting.pop(self.rng.randrange(len(self.waiting)))
        chosen = self.rng.random()
        if chosen < 0.06 and mine is not None:
            self.trail.append("disconnected")
            self.waiting.append((mine, sent, callback))
            self._disconnect()
            return
        self.waiting.append((mine, sent, callback))
        self.give(-1, self.rng.choice(self.errors) if chosen < 0.25 else "NONE")

    def give(self, place: int, name: str) -> None:
        """Answer a waiting request with an error or NONE."""
        mine, sent, callback = self.waiting.pop(place)
        answer = self._answer_to(sent, name)
        self.trail.append(f"{type(sent).__name__}: {name}")
        self.seen[f"{type(sent).__name__} {name}"] += 1
        self.theirs.answer(callback, answer)
        if mine is not None:
            self.ours.receive(mine, answer, self.clock.now_ms)
        elif isinstance(answer, FindCoordinatorResponse) and answer.coordinators[0].error_code:
            self.ours.coordinator_not_found("none", self.clock.now_ms)
        else:
            self.ours.coordinator_found()

    def settle(self) -> None:
        """Answer everything without errors until both are stable members."""
        self.run()
        while self.waiting or self.ours.state is not State.STABLE:
            if self.waiting:
                self.give(0, "NONE")
            else:
                self.clock.now_ms += 1000
            self.run()

    def _answer_to(self, sent: Message, name: str) -> Message:
        code = by_name(name).code
        if isinstance(sent, FindCoordinatorRequest):
            code = by_name("COORDINATOR_NOT_AVAILABLE").code if code else 0
            return FindCoordinatorResponse(coordinators=[Coordinator("g", 1, "h", 9, code)])
        if isinstance(sent, HeartbeatRequest):
            return HeartbeatResponse(error_code=code)
        if isinstance(sent, SyncGroupRequest):
            return self._synced(sent, code)
        assert isinstance(sent, JoinGroupRequest)
        if not sent.member_id and sent.group_instance_id is None and self.rng.random() < 0.5:
            return JoinGroupResponse(error_code=by_name("MEMBER_ID_REQUIRED").code, member_id=f"m{self.rng.randrange(100)}")
        return JoinGroupResponse(error_code=code) if code else self._joined(sent)

    def _joined(self, sent: JoinGroupRequest) -> JoinGroupResponse:
        self.generation += 1
        protocol = self.rng.choice(sent.protocols)
        member_id = sent.member_id or f"m{self.rng.randrange(100)}"
        answer = JoinGroupResponse(
            generation_id=self.generation, protocol_type="consumer", protocol_name=protocol.name, leader="other", member_id=member_id
        )
        if self.rng.random() < 0.1:
            answer.protocol_type = "connect"
        if self.rng.random() < 0.5:
            answer.leader = member_id
            answer.skip_assignment = self.instance_id is not None and self.rng.random() < 0.3
            other = write_subscription(Subscription(self.topics, [TopicPartition("t", 0)], self.generation - 1))
            answer.members = [
                JoinGroupResponseMember(member_id, self.instance_id, protocol.metadata),
                JoinGroupResponseMember("zz", None, other),
            ]
        return answer

    def _synced(self, sent: SyncGroupRequest, code: int) -> SyncGroupResponse:
        if code:
            return SyncGroupResponse(error_code=code)
        mine = next((one.assignment for one in sent.assignments if one.member_id == sent.member_id), None)
        if mine is None:
            topics = self.topics if self.rng.random() < 0.9 else sorted(TOPICS)
            found = [TopicPartition(topic, index) for topic in topics for index in range(TOPICS[topic]) if self.rng.random() < 0.5]
            mine = write_assignment(found)
        name = sent.protocol_name if self.rng.random() < 0.95 else "other"
        return SyncGroupResponse(protocol_type="consumer", protocol_name=name, assignment=mine)


def _joins_for_metadata(requests: list[Any]) -> bool:
    return any(isinstance(one.message, JoinGroupRequest) and one.message.reason == "cached metadata has changed" for one in requests)


def comparable(message: Message) -> tuple[Any, ...]:
    """Return a request without what differs for good reasons: the order of members and of owned partitions."""
    if isinstance(message, JoinGroupRequest):
        found = [(one.name, read_subscription(one.metadata, None)) for one in message.protocols]
        parts = [(name, data._replace(owned=sorted(data.owned), topics=sorted(data.topics))) for name, data in found]
        # Kafka's leader also looks at the topics of its subscription.
        reason = message.reason.replace("cached metadata", "subscription") if message.reason else message.reason
        return ("join", message.member_id, message.group_instance_id, reason, message.session_timeout_ms, parts)
    if isinstance(message, SyncGroupRequest):
        assignments = sorted((one.member_id, read_assignment(one.assignment)) for one in message.assignments)
        return ("sync", message.generation_id, message.member_id, message.group_instance_id, message.protocol_name, assignments)
    if isinstance(message, HeartbeatRequest):
        return ("beat", message.generation_id, message.member_id, message.group_instance_id)
    return (type(message).__name__,)
