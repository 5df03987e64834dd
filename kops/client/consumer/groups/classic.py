"""A consumer's membership in a classic group: commits before a rebalance, calls the listener, divides partitions as the leader.

Source: Kafka's ConsumerCoordinator (onJoinPrepare, onLeaderElected, onJoinComplete, onLeavePrepare, rejoinNeededOrPending) and
AbstractCoordinator (maybeLeaveGroup, HeartbeatThread). The requests come from `kops.client.groups.membership`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING

from kops.client.consumer.errors import WakeupError, as_kafka
from kops.client.consumer.groups.calls import ASSIGNED, LOST, REVOKED, GroupMembership, ListenerCall, Parts, Search, to_coordinator
from kops.client.consumer.groups.commits import Identity
from kops.client.consumer.parts.requests import FOREVER, Outcome, Outgoing
from kops.client.consumer.parts.state import Kind
from kops.client.groups.membership import (
    NO_GENERATION,
    Divide,
    FindCoordinator,
    GiveUp,
    GroupSettings,
    Membership,
    Prepare,
    Send,
    State,
    Take,
)
from kops.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kops.client.errors import KafkaError
    from kops.client.groups.assignors import Assignor
    from kops.protocol.declaration import Message
    from kops.records.log_offsets import TopicPartition

Steps = Generator["Outcome | ListenerCall | int", None, None]
"""The steps of a change. It waits for an outcome, for a call of the listener, or for metadata that is newer than a version."""


class ClassicGroup:
    """The membership of a consumer in a group with the classic protocol."""

    def __init__(self, parts: Parts, assignors: Sequence[Assignor], now_ms: float) -> None:
        options = parts.options
        self.call: ListenerCall | None = None
        self.error: KafkaError | None = None
        settings = GroupSettings(
            group_id=str(options.group_id),
            topics=(),
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.max_poll_interval_ms,
            heartbeat_interval_ms=options.heartbeat_interval_ms,
            request_timeout_ms=options.request_timeout_ms,
            instance_id=options.instance_id,
            rack=options.rack or None,
        )
        self._parts = parts
        self._is_cooperative = all(one.is_cooperative for one in assignors)
        self._membership = Membership(settings, assignors, parts.coordinator.backoff.delay_ms)
        self._membership.accepts = self._matches
        self._search = Search(parts.coordinator)
        self._steps: Steps | None = None
        self._wait: Outcome | ListenerCall | int | None = None
        self._polled_ms = now_ms
        self._divided: dict[str, list[frozenset[str]]] | None = None  # the partitions that this leader has divided
        self._version = -1
        self._failed: Exception | None = None  # of the last call of the listener
        self._earlier: Exception | None = None  # of the call before, in the same change

    # the program

    def subscribed(self) -> None:
        """Take the topics of a new subscription. The next poll begins a rebalance if the member has joined with others."""
        topics = sorted(self._parts.subscriptions.topics)
        if topics != list(self._membership.settings.topics):
            self._membership.settings = replace(self._membership.settings, topics=topics)

    def _matches(self, topic: str) -> bool:
        """Whether the pattern accepts a topic. The leader may know topics that this member does not know yet."""
        pattern = self._parts.subscriptions.pattern
        return pattern is not None and pattern.fullmatch(topic) is not None

    def polled(self, now_ms: float) -> None:
        """The program polls."""
        self._polled_ms = now_ms

    def rejoin(self, reason: str) -> None:
        """Begin a rebalance."""
        self._membership.rejoin(reason)

    def identity(self) -> Identity | None:
        """Return the identity for commits, if the member is in a stable generation."""
        membership = self._membership
        is_in = membership.state in (State.STABLE, State.PREPARING) and membership.generation_id != NO_GENERATION
        return Identity(membership.member_id, membership.generation_id) if is_in and membership.member_id else None

    def is_rebalancing(self) -> bool:
        """Whether a rebalance is in progress."""
        return self._membership.state in (State.JOINING, State.DIVIDING, State.SYNCING)

    def is_current(self, identity: Identity) -> bool:
        """Whether the member has still this identity. A rebalance keeps it until the member has joined."""
        return Identity(self._membership.member_id, self._membership.generation_id) == identity

    def is_joining(self) -> bool:
        """Whether the member waits for a new generation."""
        return self._membership.state is State.JOINING

    def commit_failed(self, name: str, identity: Identity) -> None:
        """Handle the error of a commit."""
        if name not in ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION"):
            self._membership.commit_failed(name, identity.generation_id, 0)

    # one turn

    def turn(self, now_ms: float, *, in_poll: bool) -> list[Outgoing]:
        """Return the requests to send now. Only in a poll may partitions change."""
        requests: list[Outgoing] = []
        self._look_for_coordinator(now_ms)
        if self._has_expired(now_ms):
            reason = "consumer poll timeout has expired."
            requests += self.leave(GroupMembership.DEFAULT, reason, now_ms)
            self._membership.forget("consumer pro-actively leaving the group", keeps_take=self.call is not None and self.call.is_followed)
        while in_poll and self.call is None:
            if self._steps is not None:
                if not self._advance():
                    break
                continue
            self._watch_metadata()
            event = self._next_event(now_ms)
            if event is None:
                break
            if isinstance(event, Send):
                requests.append(self._send(event))
            elif isinstance(event, FindCoordinator):
                self._search.start(self._membership.why)
                self._look_for_coordinator(now_ms)
            elif isinstance(event, Prepare):
                self._steps = self._prepare(now_ms)
            elif isinstance(event, Divide):
                self._steps = self._divide(event)
            elif isinstance(event, GiveUp):
                self._steps = self._give_up(event.keys)
            else:
                assert isinstance(event, Take)
                self._steps = self._take(event.keys, now_ms)
        beat = self._membership.heartbeat(now_ms)
        if beat is not None and self._parts.coordinator.node is not None:
            requests.append(self._send(beat))
        return requests

    def _next_event(self, now_ms: float) -> object:
        if self.error is not None:
            return None
        if not self._membership.settings.topics and not self._membership.member_id and not self._parts.subscriptions.pattern:
            return None
        try:
            event = self._membership.next_event(now_ms)
        except ApiError:
            error = self._membership.take_error()
            assert error is not None
            self.error = as_kafka(error)
            return None
        if isinstance(event, Send) and self._parts.coordinator.node is None:
            self._membership.coordinator_lost(self._parts.coordinator.why, now_ms)
        return event

    def _send(self, event: Send) -> Outgoing:
        return to_coordinator(self._parts.coordinator, event, self._membership.receive)

    def wake_ms(self, *, in_poll: bool) -> float:
        """Return the time of the next step."""
        membership = self._membership
        due_ms = membership.heartbeat_ms if membership.state not in (State.UNJOINED, State.JOINING) else FOREVER
        if membership.member_id and membership.state is not State.UNJOINED:
            due_ms = min(due_ms, self._polled_ms + self._parts.options.max_poll_interval_ms)
        is_waiting = self._search.is_on or membership.state is State.JOINING  # for an answer
        if in_poll and self._steps is None and self.call is None and self.error is None and not is_waiting:
            due_ms = min(due_ms, membership.wake_ms())
        return due_ms

    def _has_expired(self, now_ms: float) -> bool:
        """Whether the program has not polled for max.poll.interval.ms. Then another member gets its partitions."""
        membership = self._membership
        is_in = bool(membership.member_id) and membership.state not in (State.UNJOINED, State.JOINING)
        return is_in and now_ms - self._polled_ms > self._parts.options.max_poll_interval_ms

    def _look_for_coordinator(self, now_ms: float) -> None:
        news = self._search.look()
        if news == "found":
            self._membership.coordinator_found()
        elif news == "not found":
            self._membership.coordinator_not_found(self._parts.coordinator.why, now_ms)
        elif news == "lost":
            self._membership.coordinator_lost(self._parts.coordinator.why, now_ms)

    def _watch_metadata(self) -> None:
        """As the leader, begin a rebalance if the divided partitions have changed. What changed in the meantime is compared after a change
        of partitions, and when there is a coordinator again."""
        metadata = self._parts.metadata
        if self._version == metadata.version or self._parts.coordinator.node is None:
            return
        self._version = metadata.version
        if self._divided is None or not self._membership.is_leader:
            return
        if metadata.racks(self._divided) != self._divided:
            self._divided = None
            self._membership.rejoin("cached metadata has changed", keeps_reason=True)

    # changes

    def _advance(self) -> bool:
        """Take the next step of a change. Returns False if it waits."""
        assert self._steps is not None
        wait = self._wait
        if isinstance(wait, Outcome) and not wait.is_done:
            return False
        if isinstance(wait, int) and self._parts.metadata.version <= wait:
            return False
        if isinstance(wait, ListenerCall) and self.call is not None:
            return False
        try:
            self._wait = next(self._steps)
        except StopIteration:
            self._steps = self._wait = None
        else:
            if isinstance(self._wait, ListenerCall):
                self.call = self._wait
        return True

    def _tell(
        self,
        method: str,
        keys: Sequence[TopicPartition],
        *,
        passes_on: bool = True,
        is_followed: bool = False,
        earlier: Exception | None = None,
        after: Callable[[], object] | None = None,
    ) -> ListenerCall:
        """Return a call of the listener. `after` is called at its end, before `poll` raises its error, but not after a wake-up."""
        self._failed = None

        def done(error: Exception | None) -> None:
            self.call, self._failed = None, error
            if after is not None and not isinstance(error, WakeupError):
                after()

        return ListenerCall(method, sorted(keys), done, passes_on=passes_on, is_followed=is_followed, earlier=earlier)

    def _is_lost(self) -> bool:
        return self._membership.generation_id == NO_GENERATION or not self._membership.member_id

    def _prepare(self, now_ms: float) -> Steps:
        """Commit, and revoke the partitions that do not stay in the next rebalance."""
        subscriptions, commits, options = self._parts.subscriptions, self._parts.commits, self._parts.options
        if not self._is_lost() and options.auto_commit_ms is not None:
            if not self._is_cooperative:
                for state in subscriptions.partitions.values():
                    state.is_revoking = True
            yield commits.commit_before_rebalance(now_ms + options.max_poll_interval_ms)
        gone = list(subscriptions.partitions)
        is_lost = self._is_lost()
        if self._is_cooperative and not is_lost:
            gone = [key for key in gone if key.topic not in subscriptions.topics]

        def drop() -> None:
            dropped = set(gone)
            subscriptions.assign([key for key in subscriptions.partitions if key not in dropped])

        if gone or not (self._is_cooperative or is_lost):
            # A listener that was woken up has not given them up, as in Kafka.
            yield self._tell(LOST if is_lost else REVOKED, gone, passes_on=False, after=drop if gone else None)
        subscriptions.group_topics = frozenset()
        self._divided = None
        if self._membership.state is State.PREPARING:
            self._membership.prepared([key for key in self._membership.owned if key not in subscriptions.partitions])

    def _divide(self, event: Divide) -> Steps:
        """As the leader, look up the partitions of all topics of the members, and divide them."""
        metadata, subscriptions = self._parts.metadata, self._parts.subscriptions
        wanted = frozenset(topic for member in event.members.values() for topic in member.topics)
        if not wanted <= subscriptions.metadata_topics():
            subscriptions.group_topics = wanted
            metadata.want_soon()
            yield metadata.version
        elif not metadata.is_idle:
            yield metadata.version
        subscriptions.group_topics = wanted
        self._divided = metadata.racks(wanted)
        self._membership.divide(event.members, self._divided)

    def _give_up(self, keys: Sequence[TopicPartition]) -> Steps:
        """Revoke partitions that another member gets in the next rebalance. `_take` follows."""
        yield self._tell(REVOKED, keys, is_followed=True)
        while isinstance(self._failed, WakeupError):  # the next poll repeats the end of the join
            if self._is_lost():  # there is no join to complete
                self._membership.forget("the member has left the group in the call of a listener that was woken up")
                return
            yield self._tell(REVOKED, keys, is_followed=True)
        self._earlier = self._failed
        dropped = set(keys)
        subscriptions = self._parts.subscriptions
        subscriptions.assign([key for key in subscriptions.partitions if key not in dropped])

    def _take(self, keys: Sequence[TopicPartition], now_ms: float) -> Steps:
        """Take over the assignment. Topics that match the pattern, and that only the leader knew, join the subscription."""
        subscriptions = self._parts.subscriptions
        new = {key.topic for key in self._membership.owned}.difference(self._membership.settings.topics)
        if new and subscriptions.pattern is not None:
            subscriptions.topics |= new
            self._membership.add_topics(new)
        keys = [key for key in keys if key not in subscriptions.partitions]
        subscriptions.assign(self._membership.owned)
        self._parts.commits.restart(now_ms)
        earlier, self._earlier = self._earlier, None
        yield self._tell(ASSIGNED, keys, earlier=earlier)
        self._failed = self._failed or earlier
        while self._failed is not None and not self._is_lost():  # in Kafka, the next poll repeats the end of a join that has failed
            yield self._tell(ASSIGNED, [])

    # the end

    def release(self) -> None:
        """Revoke all partitions before leaving."""
        subscriptions = self._parts.subscriptions
        keys = list(subscriptions.partitions)
        if not keys or subscriptions.kind is Kind.ASSIGNED:
            return
        self._steps = self._wait = None
        method = LOST if self._is_lost() or self.is_rebalancing() else REVOKED

        def done(error: Exception | None) -> None:
            self.call = None
            if not isinstance(error, WakeupError):
                subscriptions.assign(())

        self.call = ListenerCall(method, sorted(keys), done, passes_on=False)

    def leave(self, membership: GroupMembership, reason: str, now_ms: float) -> list[Outgoing]:
        """Return the requests that leave the group."""
        if membership is GroupMembership.REMAIN or self._parts.coordinator.node is None:
            return []
        message = self._membership.leave(reason, static_too=membership is GroupMembership.LEAVE)
        if message is None:
            return []

        def ignored(sent: Message, answer: Message | ApiError, now_ms: float) -> None:
            """Nobody waits for this answer: the member is gone."""

        return [to_coordinator(self._parts.coordinator, Send(message), ignored)]
