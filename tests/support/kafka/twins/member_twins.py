"""A member of kops and one of Kafka that get the same calls, answers, failures and time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from kops.client.groups.membership import FindCoordinator, Send
from kops.client.groups.modern.consumer import ConsumerMember, Leaving
from kops.client.groups.modern.events import Assigned, Cleared, Commit, Failed, FindTopics, Left, Lost, Pause, Reconciled, Revoked
from kops.client.groups.modern.heartbeats import ModernSettings
from kops.client.groups.modern.share import ShareMember
from kops.client.groups.modern.states import MemberState
from kops.errors import ApiError
from kops.protocol import errors
from kops.protocol.declaration import Message
from kops.protocol.errors import by_name
from kops.protocol.messages import ConsumerGroupHeartbeatResponse, ShareGroupHeartbeatResponse
from kops.protocol.messages import consumer_group_heartbeat_response as consumer_response
from kops.protocol.messages import share_group_heartbeat_response as share_response
from tests.support.kafka.manual_jvm import ManualClock
from tests.support.kafka.twins.java_coordinators import KAFKA, JavaCoordinators
from tests.support.kafka.twins.java_members import BACKOFF_MAX_MS, BACKOFF_MS, JavaMember, keys_of

IDS: Final = {bytes([index]) * 16: name for index, name in enumerate(("t", "u", "v"), 1)}
HEALED: Final = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID")
ENDING: Final = (
    *("TOPIC_AUTHORIZATION_FAILED", "GROUP_ID_NOT_FOUND", "GROUP_AUTHORIZATION_FAILED", "INVALID_REQUEST", "GROUP_MAX_SIZE_REACHED"),
    *("UNSUPPORTED_ASSIGNOR", "INVALID_REGULAR_EXPRESSION", "UNSUPPORTED_VERSION", "UNRELEASED_INSTANCE_ID", "FENCED_INSTANCE_ID"),
)
ALL: Final = tuple(one.name for code in range(-1, 140) if (one := errors.by_code(code)).name != "NONE")
NETWORK: Final = (*("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT") * 5, "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_VERSION", "CORRUPT_MESSAGE")
SEARCH: Final = ("COORDINATOR_NOT_AVAILABLE", "GROUP_AUTHORIZATION_FAILED", "INVALID_REQUEST")
COMMIT: Final = ("NONE", "NONE", "TOPIC_AUTHORIZATION_FAILED", "OFFSET_METADATA_TOO_LARGE")
Keys = Sequence[tuple[str, int]]


class MemberTwins:
    """Both members, and the requests that still wait for an answer."""

    def __init__(self, java: JavaCoordinators, clock: ManualClock, rng: random.Random, *, is_share: bool) -> None:
        self.rng, self.clock, self.is_share = rng, clock, is_share
        poll_ms = rng.choice((9_000, 30_000))
        settings: dict[str, Any] = {
            "group_id": "g",
            "instance_id": rng.choice((None, "i")),
            "rack": "r" if is_share else rng.choice((None, "r")),
            "server_assignor": rng.choice((None, "uniform")),
            "max_poll_interval_ms": poll_ms,
            "auto_commits": not is_share and rng.random() < 0.5,
        }
        has_listener = not is_share and rng.random() < 0.7
        self.theirs = JavaMember(java, clock, settings | {"has_listener": has_listener}, is_share=is_share)
        self.names: dict[bytes, str] = {}
        self.ours: ConsumerMember | ShareMember = (ShareMember if is_share else ConsumerMember)(
            ModernSettings(**settings),
            self.theirs.member_id,
            self.names.get,
            lambda failures: min(BACKOFF_MS * 2**failures, BACKOFF_MAX_MS),
            clock.now_ms,
        )
        self.ours.has_listener = has_listener
        self.java = java
        self.beats: list[tuple[Message, Any]] = []
        self.finds: list[Any] = []
        self.commits: list[tuple[Commit, Any]] = []
        self.work: list[tuple[Any, Any]] = []  # for the application
        self.future: Any = None
        self.has_left = True
        self.is_pattern = self.is_subscribed = False
        self.epoch = 0
        self.is_asked = False
        self.paused: set[tuple[str, int]] = set()
        self.awaited: set[tuple[str, int]] = set()
        self.seen: Counter[str] = Counter()
        self.trail: list[str] = []  # for the reader of a failure

    # both do what there is to do

    def run(self) -> bool:
        """Let both send requests and report events, and check that these are the same. Return whether there were any."""
        sends, finds, commits, told = self._ours()
        their_beats, their_finds, their_commits = self.theirs.sent()
        same([comparable(one) for one in sends], [comparable(one.message) for one in their_beats])
        same(finds, len(their_finds))
        self.beats += [(ours, theirs.handler) for ours, theirs in zip(sends, their_beats, strict=True)]
        self.finds += their_finds
        self._match_commits(commits, their_commits)
        self._match_work(told)
        self._compare()
        if self.is_asked:
            assert self.theirs.metadata.updateRequested()
        assert self.ours.wake_ms() > self.clock.now_ms
        return bool(sends or finds or commits or told)

    def _ours(self) -> tuple[list[Message], int, list[Commit], list[Any]]:
        sends, finds, commits, told = [], 0, [], []
        while (event := self.ours.next_event(self.clock.now_ms)) is not None:
            self.seen[type(event).__name__] += 1
            if isinstance(event, Send):
                sends.append(event.message)
            elif isinstance(event, FindCoordinator):
                finds += 1
            elif isinstance(event, Commit) and not self.ours.owned:
                self.ours.done(event)  # Kafka's CommitRequestManager has nothing to send
            elif isinstance(event, Commit):
                commits.append(event)
            elif isinstance(event, Pause):
                self.paused |= set(event.keys)
            elif isinstance(event, Cleared):
                self.paused, self.awaited = set(), set()
                self.is_subscribed = self.is_subscribed and not event.unsubscribes
            elif isinstance(event, FindTopics):
                self.is_asked = True
            elif isinstance(event, Left):
                self.has_left = True
            elif not isinstance(event, Reconciled) and not (isinstance(event, Assigned) and self.is_share):
                told.append(event)
        return sends, finds, commits, told

    def _match_commits(self, ours: list[Commit], theirs: list[Any]) -> None:
        """Pair the commits. Kafka sends no request if there is nothing to commit or the coordinator is not known yet."""
        self.commits += [(one, None) for one in ours]
        for handler in theirs:
            place = next(index for index, (_, found) in enumerate(self.commits) if found is None)
            self.commits[place] = (self.commits[place][0], handler)

    def _match_work(self, told: list[Any]) -> None:
        """Check that the application gets the same work from both."""
        for event in told:
            theirs = self.theirs.events.poll()
            assert theirs is not None, event
            kind = str(theirs.type())
            if isinstance(event, Failed):
                assert kind == "ERROR"
                error = theirs.error()
                name = errors.by_exception(str(error.getClass().getName())).name
                same(event.error.name, name)
                default = getattr(self.java.oracle.java_class(f"{KAFKA}common.protocol.Errors"), name).message()
                text = str(event.error)
                same(default if text == by_name(name).words else text, str(error.getMessage()))
                self.seen[f"{name}"] += 1
                continue
            if isinstance(event, Assigned):
                assert kind == "PARTITIONS_ASSIGNED"
                same(list(map(tuple, event.added)), keys_of(theirs.addedPartitions()))
                same(list(map(tuple, event.keys)), keys_of(theirs.assignedPartitions()))
            else:
                assert kind == "PARTITIONS_REMOVED"
                same({Revoked: "ON_PARTITIONS_REVOKED", Lost: "ON_PARTITIONS_LOST"}[type(event)], str(theirs.methodName()))
                same(list(map(tuple, event.keys)), keys_of(theirs.partitions()))
            self.work.append((event, theirs))
        same("[]", str(self.theirs.events.toString()))

    def _compare(self) -> None:
        ours, theirs = self.ours, self.theirs
        same(ours.state.name, str(theirs.member.state()))
        same(ours.member_epoch, theirs.member.memberEpoch())
        owned = theirs.owned()
        same(sorted(map(tuple, ours.owned)), owned)
        if owned and not self.is_share:
            readable = [key for key in owned if key not in self.paused | self.awaited and (self.is_pattern or key[0] in ours.topics)]
            same(readable, theirs.fetchable())
        if self.future is not None:
            same(self.has_left, self.future.isDone())

    # what happens to both

    def step(self) -> None:
        """Let one random thing happen to both."""
        chosen = self.rng.choice(self._choices())
        self.seen[f"{chosen} {self.ours.state.name}"] += 1
        self.trail.append(f"{self.clock.now_ms % 1_000_000} {chosen} {self.ours.state.name}")
        wake_ms, is_time = self.ours.wake_ms(), chosen == "advance"
        getattr(self, chosen)()
        if self.run() and is_time:
            assert self.clock.now_ms >= wake_ms

    def _choices(self) -> list[str]:
        choices = ["advance"] * 4 + ["learn"]
        choices += ["answer"] * 6 * bool(self.beats)
        choices += ["find"] * 8 * bool(self.finds)
        choices += ["work_off"] * 4 * bool(self.work)
        choices += ["commit"] * 4 * bool(self.commits)
        if self.has_left:
            choices += ["poll"] * 3 + ["subscribe"] if self.is_subscribed else ["subscribe"] * 4
        if self.ours.state is not MemberState.UNSUBSCRIBED and self.rng.random() < 0.15:
            choices.append("leave")
        return choices

    def advance(self) -> None:
        """Let time pass."""
        wake_ms = self.ours.wake_ms()
        spans = [self.rng.randrange(1, 60), BACKOFF_MS, 1000]
        if wake_ms < float("inf"):
            spans += [int(wake_ms) - self.clock.now_ms] * 4
        self.clock.now_ms += self.rng.choice(spans)

    def learn(self) -> None:
        """Give both new metadata."""
        self.is_asked = False
        self.names.clear()
        self.names.update({one: name for one, name in IDS.items() if self.rng.random() < 0.8})
        self.theirs.learn(self.names)
        self.ours.metadata_changed()

    def answer(self) -> None:
        """Answer a heartbeat, or let it fail."""
        sent, handler = self.beats.pop(self.rng.randrange(len(self.beats)))
        chosen = self.rng.random()
        if chosen < 0.12:
            error = self.rng.choice(NETWORK)
            self.seen[f"failed {error}"] += 1
            self.trail.append(f"failed {error}")
            self.ours.receive(sent, ApiError(error, by_name(error).words), self.clock.now_ms)
            self.theirs.fail(handler, error)
            return
        name = "NONE"
        if chosen < 0.27:
            name = self.rng.choice((*HEALED * 4, "TOPIC_AUTHORIZATION_FAILED", "GROUP_ID_NOT_FOUND", self.rng.choice(ALL)))
        self._answer(sent, handler, name)

    def end(self, name: str) -> None:
        """Answer with an error that ends the life in most cases."""
        for _ in range(30):
            if self.beats:
                break
            self.step()
        if self.beats:
            self._answer(*self.beats.pop(), name)
            self.run()

    def _answer(self, sent: Message, handler: Any, name: str) -> None:
        self.seen[f"answered {name}"] += 1
        self.trail.append(f"answered {name}")
        self.epoch += self.rng.random() < 0.3
        assigned = None
        if name == "NONE" and self.rng.random() < 0.6:
            assigned = {one: sorted(self.rng.sample(range(4), self.rng.randrange(1, 4))) for one in IDS if self.rng.random() < 0.6}
        epoch = sent.member_epoch if sent.member_epoch < 0 else max(self.epoch, 1)  # type: ignore[attr-defined]  # a heartbeat
        answer = self._response(by_name(name).code, self.rng.choice((None, "because")), epoch, assigned)
        self.ours.receive(sent, answer, self.clock.now_ms)
        self.theirs.answer(handler, answer)

    def _response(self, code: int, text: str | None, epoch: int, assigned: dict[bytes, list[int]] | None) -> Message:
        if not code:
            text = None
        elif code == by_name("INVALID_REGULAR_EXPRESSION").code:
            text = "because"
        interval_ms = self.rng.choice((3000, 3000, 3000, 700))
        member_id = self.theirs.member_id
        if self.is_share:
            shares = (
                None if assigned is None else share_response.Assignment([share_response.TopicPartitions(*one) for one in assigned.items()])
            )
            return ShareGroupHeartbeatResponse(0, code, text, member_id, epoch, interval_ms, shares)
        made = None
        if assigned is not None:
            made = consumer_response.Assignment([consumer_response.TopicPartitions(*one) for one in assigned.items()])
        return ConsumerGroupHeartbeatResponse(0, code, text, member_id, epoch, interval_ms, made)

    def find(self) -> None:
        """Let the look-up of the coordinator succeed or fail."""
        handler = self.finds.pop()
        error = self.rng.choice(("NONE",) * 6 + SEARCH[: 1 if self.commits else 3])  # a fatal one would end Kafka's commits, too
        if error == "NONE":
            self.ours.coordinator_found(self.clock.now_ms)
        else:
            self.ours.coordinator_not_found(ApiError(error, by_name(error).words), self.clock.now_ms)
        self.theirs.found(handler, error)

    def poll(self) -> None:
        """Let the application poll."""
        self.ours.polled(self.clock.now_ms)
        self.theirs.polled()

    def subscribe(self) -> None:
        """Subscribe to other topics or to another pattern."""
        if not self.is_subscribed:
            self.is_pattern = not self.is_share and self.rng.random() < 0.3
        topics = () if self.is_pattern else tuple(self.rng.sample(sorted(IDS.values()), self.rng.randrange(1, 4)))
        pattern = self.rng.choice(("t.*", "[uv]")) if self.is_pattern else None
        self.is_subscribed = True
        self.ours.subscribe(topics, pattern)
        self.theirs.subscribe(topics, pattern)

    def leave(self) -> None:
        """Unsubscribe."""
        self._leave(self.theirs.member.leaveGroup, self.ours.leave)

    def _leave(self, theirs: Any, ours: Any) -> None:
        if self.has_left:
            self.has_left = False
        self.future = theirs()
        ours()

    def close(self) -> None:
        """Close the consumer. This ends its life."""
        if self.is_share:
            self.leave()
        else:
            assert isinstance(self.ours, ConsumerMember)
            leaving, member = self.rng.choice(list(Leaving)), self.ours
            operation = f"{KAFKA}clients.consumer.CloseOptions$GroupMembershipOperation"
            made = getattr(self.java.oracle.java_class(operation), leaving.value)
            self._leave(lambda: self.theirs.member.leaveGroupOnClose(made), lambda: member.close(leaving))
            self.seen[f"closed {leaving.name} {self.ours.settings.instance_id}"] += 1
        last, theirs = self.ours.last_words(), self.theirs.last_words()
        same([] if last is None else [comparable(last.message)], [comparable(one.message) for one in theirs])

    def work_off(self) -> None:
        """Let the application carry out its oldest piece of work."""
        ours, theirs = self.work.pop(0)
        is_ok = self.rng.random() < 0.85
        if isinstance(ours, Assigned):
            if self.ours.apply(ours):
                self.theirs.member.applyAssignment(theirs.assignedPartitions(), theirs.addedPartitions())
                self._took(ours)
            if is_ok:
                self.awaited -= set(ours.keys)
        self.ours.done(ours, is_ok=is_ok)
        if is_ok:
            theirs.future().complete(None)
        else:
            theirs.future().completeExceptionally(self.java.make("common.KafkaException", "of the listener"))

    def _took(self, assigned: Assigned) -> None:
        keys, added = set(assigned.keys), list(assigned.added)
        self.paused &= keys
        self.awaited = (self.awaited & keys) | set(added)
        self.theirs.seek(added)

    def commit(self) -> None:
        """End a commit as soon as Kafka has a request for it or nothing to commit."""
        ours, handler = self.commits[0]
        keys = self.theirs.owned()
        if handler is None and keys:
            return
        self.commits.pop(0)
        error = self.rng.choice(COMMIT) if handler is not None else "NONE"
        self.ours.done(ours, is_ok=error == "NONE")
        if handler is not None:
            self.theirs.committed(handler, keys, error)


def same(ours: object, theirs: object) -> None:
    """Check that both have done the same."""
    assert ours == theirs, f"kops: {ours}\nKafka: {theirs}"


def comparable(message: Message) -> tuple[Any, ...]:
    """Return the fields of a heartbeat without the order of its topics."""
    found = []
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name == "topic_partitions" and value is not None:
            value = sorted((one.topic_id, tuple(one.partitions)) for one in value)
        elif isinstance(value, list):
            value = sorted(value)
        found.append((field.name, value))
    return tuple(found)
