"""A consumer's membership in a group with the consumer protocol (KIP-848), whose coordinator divides the partitions.

Source: Kafka's AsyncKafkaConsumer (background events, close), CommitRequestManager. The requests come from `kops.client.groups.modern`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from kops.client.consumer.errors import as_kafka
from kops.client.consumer.groups.calls import ASSIGNED, LOST, REVOKED, GroupMembership, ListenerCall, Parts, Search, to_coordinator
from kops.client.consumer.groups.commits import Identity
from kops.client.consumer.parts.requests import Outcome, Outgoing
from kops.client.consumer.parts.state import Kind
from kops.client.groups.membership import FindCoordinator, Send
from kops.client.groups.modern.consumer import ConsumerMember, Leaving
from kops.client.groups.modern.events import Assigned, Cleared, Commit, Failed, FindTopics, Lost, Pause, Reconciled, Revoked
from kops.client.groups.modern.heartbeats import ModernSettings
from kops.errors import ApiError

if TYPE_CHECKING:
    from kops.client.errors import KafkaError

_LEAVINGS: Final = {
    GroupMembership.DEFAULT: Leaving.DEFAULT,
    GroupMembership.LEAVE: Leaving.LEAVE,
    GroupMembership.REMAIN: Leaving.REMAIN,
}


class ModernGroup:
    """The membership of a consumer in a group with the consumer protocol. `member_id` is a random UUID."""

    def __init__(self, parts: Parts, member_id: str, now_ms: float) -> None:
        options = parts.options
        self.error: KafkaError | None = None
        settings = ModernSettings(
            group_id=str(options.group_id),
            max_poll_interval_ms=options.max_poll_interval_ms,
            instance_id=options.instance_id,
            rack=options.rack or None,
            server_assignor=options.remote_assignor,
            auto_commits=options.auto_commit_ms is not None,
        )
        self._parts = parts
        self._member = ConsumerMember(settings, member_id, self._name_of, parts.coordinator.backoff.delay_ms, now_ms)
        self._member.has_listener = True
        self._search = Search(parts.coordinator)
        self._waiting: deque[Revoked | Lost | Assigned] = deque()  # for a poll
        self._call: ListenerCall | None = None
        self._version = -1
        self._sent: tuple[frozenset[str], str | None] | None = None
        self._is_releasing = False

    def _name_of(self, topic_id: bytes) -> str | None:
        ids = self._parts.metadata.cluster.topic_ids
        return next((name for name, one in ids.items() if one == topic_id), None)

    # the program

    @property
    def call(self) -> ListenerCall | None:
        """The call of the listener that is due in a poll."""
        while self._call is None and self._waiting and not self._is_releasing:
            self._begin(self._waiting.popleft())
        return self._call

    def subscribed(self) -> None:
        """Take the topics or the pattern of a new subscription."""
        subscriptions = self._parts.subscriptions
        wanted = (subscriptions.topics, subscriptions.server_pattern)
        has_any = bool(subscriptions.topics) or subscriptions.server_pattern is not None or self._sent is not None
        if wanted != self._sent and has_any:
            self._sent = wanted
            self._member.subscribe(sorted(subscriptions.topics), subscriptions.server_pattern)

    def polled(self, now_ms: float) -> None:
        """The program polls."""
        self._member.polled(now_ms)

    def rejoin(self, reason: str) -> None:
        """Nothing: in this protocol, only the coordinator decides on a rebalance (as in Kafka's AsyncKafkaConsumer)."""

    def identity(self) -> Identity | None:
        """Return the identity for commits, if the member is in the group."""
        epoch = self._member.group_epoch
        return None if epoch is None else Identity(self._member.member_id, epoch)

    def is_rebalancing(self) -> bool:
        """Never: commits are allowed during a reconciliation."""
        return False

    def is_current(self, identity: Identity) -> bool:
        """Whether the member has still this epoch."""
        return self.identity() == identity

    def is_joining(self) -> bool:
        """Never: see is_rebalancing."""
        return False

    def commit_failed(self, name: str, identity: Identity) -> None:
        """Nothing: the next heartbeat tells the member what it has missed."""

    # one turn

    def turn(self, now_ms: float, *, in_poll: bool) -> list[Outgoing]:
        """Return the requests to send now."""
        requests: list[Outgoing] = []
        metadata = self._parts.metadata
        if self._version != metadata.version:
            self._version = metadata.version
            self._member.metadata_changed()
        self._look_for_coordinator(now_ms)
        while (event := self._member.next_event(now_ms)) is not None:
            if isinstance(event, Send):
                requests += self._send(event)
            elif isinstance(event, FindCoordinator):
                self._search.start(self._member.why)
                self._look_for_coordinator(now_ms)
            elif isinstance(event, Revoked | Lost | Assigned):
                self._waiting.append(event)
            elif isinstance(event, Commit):
                self._commit(event)
            else:
                self._take(event, now_ms)
        return requests

    def _take(self, event: object, now_ms: float) -> None:
        subscriptions, metadata = self._parts.subscriptions, self._parts.metadata
        if isinstance(event, FindTopics):
            metadata.topic_ids = self._member.target_topic_ids
            metadata.want_soon()
        elif isinstance(event, Pause):
            for key in event.keys:
                state = subscriptions.partitions.get(key)
                if state is not None:
                    state.is_revoking = True
        elif isinstance(event, Cleared):
            if subscriptions.is_automatic:
                subscriptions.assign(())
        elif isinstance(event, Reconciled):
            self._parts.commits.restart(now_ms)
        elif isinstance(event, Failed):
            self.error = as_kafka(event.error)

    def _send(self, event: Send) -> list[Outgoing]:
        if self._parts.coordinator.node is None:
            error = ApiError("COORDINATOR_NOT_AVAILABLE", self._parts.coordinator.why)
            self._member.receive(event.message, error, 0)
            return []
        return [to_coordinator(self._parts.coordinator, event, self._member.receive)]

    def _commit(self, event: Commit) -> None:
        commits = self._parts.commits

        def done(outcome: Outcome) -> None:
            self._member.done(event, is_ok=outcome.error is None)

        commits.commit_before_rebalance(event.deadline_ms).then(done)

    def _look_for_coordinator(self, now_ms: float) -> None:
        coordinator = self._parts.coordinator
        news = self._search.look()
        if news == "found":
            self._member.coordinator_found(now_ms)
        elif news == "not found":
            self._member.coordinator_not_found(ApiError("COORDINATOR_NOT_AVAILABLE", coordinator.why), now_ms)
        elif news == "lost":
            self._member.coordinator_lost(coordinator.why)

    def wake_ms(self, *, in_poll: bool) -> float:
        """Return the time of the next step."""
        return float("inf") if self._search.is_on else self._member.wake_ms()

    # calls of the listener

    def _begin(self, event: Revoked | Lost | Assigned) -> None:
        """Prepare a call of the listener."""
        subscriptions = self._parts.subscriptions
        if isinstance(event, Assigned):
            if not self._member.apply(event):
                self._member.done(event)
                return
            subscriptions.assign(event.keys)
            for key in event.added:
                subscriptions.partitions[key].has_pending_call = True
            for state in subscriptions.partitions.values():
                state.is_revoking = False
            self._call = ListenerCall(ASSIGNED, event.added, lambda error: self._assigned(event, error))
            return

        def done(error: Exception | None) -> None:
            self._call = None
            self._member.done(event, is_ok=error is None)

        self._call = ListenerCall(REVOKED if isinstance(event, Revoked) else LOST, event.keys, done)

    def _assigned(self, event: Assigned, error: Exception | None) -> None:
        self._call = None
        if error is None:
            for key in event.added:
                state = self._parts.subscriptions.partitions.get(key)
                if state is not None:
                    state.has_pending_call = False
        self._member.done(event, is_ok=error is None)

    # the end

    def release(self) -> None:
        """Revoke all partitions before leaving."""
        self._is_releasing = True
        self._waiting.clear()
        keys = sorted(self._parts.subscriptions.partitions)

        def done(error: Exception | None) -> None:
            self._call = None
            self._parts.subscriptions.assign(())

        self._call = None
        if keys and self._parts.subscriptions.kind is not Kind.ASSIGNED:
            self._call = ListenerCall(LOST if self._member.group_epoch is None else REVOKED, keys, done)

    def leave(self, membership: GroupMembership, reason: str, now_ms: float) -> list[Outgoing]:
        """Return the requests that leave the group."""
        self._member.close(_LEAVINGS[membership])
        requests = self.turn(now_ms, in_poll=False)
        last = self._member.last_words()
        if last is not None and self._parts.coordinator.node is not None:
            requests += self._send(last)
        return requests
