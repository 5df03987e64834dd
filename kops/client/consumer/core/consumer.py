"""A whole consumer without I/O: subscriptions, seeks and commits in; requests, records and calls of listeners out.

Source: Kafka's ClassicKafkaConsumer and AsyncKafkaConsumer (poll, updateAssignmentMetadataIfNeeded, position, close). Its driver holds a
lock during every call, sends the requests of `turn`, and makes the listener's calls (`call`) without the lock.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kops.client.consumer.core.collecting import Collector
from kops.client.consumer.core.fetching import Fetcher
from kops.client.consumer.core.offsets import Found, OffsetLookups
from kops.client.consumer.core.topics import TopicLookups
from kops.client.consumer.errors import InvalidGroupIdError, NoOffsetForPartitionError, as_kafka
from kops.client.consumer.groups.calls import GroupMembership, Parts
from kops.client.consumer.groups.classic import ClassicGroup
from kops.client.consumer.groups.commits import NO_MEMBER, Commits, Identity
from kops.client.consumer.groups.coordinator import Coordinator
from kops.client.consumer.parts.metadata import ConsumerMetadata
from kops.client.consumer.parts.requests import FOREVER, Outcome, Outgoing
from kops.client.consumer.parts.state import Kind, Phase, Position, Subscriptions
from kops.client.consumer.records import ConsumerGroupMetadata, ConsumerRecords, OffsetAndTimestamp, SubscriptionPattern
from kops.client.offsets import LATEST
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kops.client.consumer.core.collecting import Deserializers, Fetched
    from kops.client.consumer.groups.calls import Group, ListenerCall
    from kops.client.consumer.groups.commits import Offsets
    from kops.client.consumer.options import ConsumerOptions, Reset
    from kops.client.consumer.parts.requests import Links
    from kops.client.errors import KafkaError
    from kops.client.groups.assignors import Assignor
    from kops.client.metrics.consumer import ConsumerMetrics
    from kops.records.log_offsets import TopicPartition

_NO_GROUP: Final = "group.id: not set; subscribing, committed offsets and group metadata need it"


class ConsumerCore:
    """The state of a consumer. Times are ms of the client's clock, except for `wall_ms()`, which counts since the epoch."""

    def __init__(
        self,
        options: ConsumerOptions,
        bootstrap: Sequence[tuple[str, int]],
        links: Links,
        draw: Callable[[], float],
        wall_ms: Callable[[], int],
        deserializers: Deserializers,
        assignors: Sequence[Assignor],
        make_id: Callable[[], str],
        now_ms: float,
        metrics: ConsumerMetrics | None = None,
    ) -> None:
        self.options = options
        self.subscriptions = Subscriptions(options.reset)
        self.metadata = ConsumerMetadata(bootstrap, options, draw, self.subscriptions)
        self.coordinator = Coordinator(options, self.metadata, links, draw)
        self.commits = Commits(options, self.coordinator, self.subscriptions, now_ms)
        self.offsets = OffsetLookups(options, self.metadata, self.subscriptions, links, wall_ms)
        self.fetcher = Fetcher(options, self.metadata, self.subscriptions, links, self.offsets.use_leader, metrics)
        self.topics = TopicLookups(options, self.metadata.cluster, links, self.coordinator.backoff.delay_ms)
        self.collector = Collector(options, self.metadata, self.subscriptions, self.fetcher.completed, deserializers, metrics)
        self.group: Group | None = None
        self._assignors = assignors
        self._links = links
        self._make_id = make_id
        self._version = -1
        self._before: dict[TopicPartition, Position] = {}
        self._early: list[Outgoing] = []  # requests of the group for the next turn

    # subscriptions

    def subscribe(self, topics: Iterable[str] | re.Pattern[str] | SubscriptionPattern, now_ms: float) -> None:
        """Read topics, or those whose whole names match a pattern. The group assigns partitions at the next polls."""
        self.ensure_group()
        subscriptions = self.subscriptions
        if isinstance(topics, SubscriptionPattern):
            if not self.options.uses_consumer_protocol:
                raise UsageError("SubscriptionPattern: only with group.protocol=consumer; use a pattern of re.compile")
            subscriptions.set_kind(Kind.SERVER_PATTERN)
            subscriptions.server_pattern = topics.pattern
        elif isinstance(topics, re.Pattern):
            subscriptions.set_kind(Kind.PATTERN)
            subscriptions.pattern = topics
        else:
            subscriptions.set_kind(Kind.TOPICS)
            subscriptions.topics = frozenset(topics)
        self.metadata.want_soon()
        self._match()
        if self.group is None:
            self.group = self._new_group(now_ms)
            self.commits.member = self.group
        self.group.subscribed()

    def _new_group(self, now_ms: float) -> Group:
        parts = Parts(self.options, self.metadata, self.subscriptions, self.coordinator, self.commits)
        if self.options.uses_consumer_protocol:
            from kops.client.consumer.groups.modern import ModernGroup

            return ModernGroup(parts, self._make_id(), now_ms)
        if not self._assignors:
            raise UsageError("partition.assignment.strategy: empty; allowed for subscribe: one or more assignors")
        return ClassicGroup(parts, self._assignors, now_ms)

    def _match(self) -> None:
        """Subscribe to the topics that match the pattern now."""
        pattern = self.subscriptions.pattern
        if pattern is not None:
            self.subscriptions.topics = frozenset(name for name in self.metadata.names if pattern.fullmatch(name))
            if self.group is not None:
                self.group.subscribed()

    def assign(self, keys: Iterable[TopicPartition]) -> None:
        """Read partitions without a group's help. Those that stay keep their positions."""
        self.subscriptions.set_kind(Kind.ASSIGNED)
        self.subscriptions.assign(keys)
        self.fetcher.retain(self.subscriptions.partitions)
        for key in self.commits.given.keys() - self.subscriptions.partitions.keys():
            del self.commits.given[key]
        if any(key.topic not in self.metadata.cluster.partition_counts for key in self.subscriptions.partitions):
            self.metadata.want_soon()
        self.offsets.forget_leaders()

    def unsubscribed(self) -> None:
        """Forget the subscription, after the member has left."""
        self.group = None
        self.commits.member = NO_MEMBER
        if self.options.uses_consumer_protocol:
            self._identity = Identity()
        self.subscriptions.unsubscribe()
        self.commits.given.clear()
        self.fetcher.completed.clear()

    def ensure_group(self) -> None:
        """Raise InvalidGroupIdError without group.id."""
        if self.options.group_id is None:
            raise InvalidGroupIdError(_NO_GROUP)

    # positions

    def seek(self, key: TopicPartition, offset: int, epoch: int | None) -> None:
        """Continue at an offset. With the epoch of the record before it, the position is validated first."""
        state = self.subscriptions.state(key)
        leader = self.metadata.cluster.leaders.get(key)
        position = Position(offset, epoch) if leader is None else Position(offset, epoch, leader)
        state.seek_unvalidated(position)
        self.metadata.see_epoch(key, epoch)
        self.commits.given.pop(key, None)
        self.offsets.forget_leaders()

    def reset(self, keys: Iterable[TopicPartition], reset: Reset) -> None:
        """Continue at the beginning or at the end, which is looked up at the next poll."""
        wanted = list(keys) or list(self.subscriptions.partitions)
        for key in wanted:
            self.subscriptions.state(key).request_reset(reset)
            self.commits.given.pop(key, None)

    def position(self, key: TopicPartition) -> int | None:
        """Return the offset of the next record, or None if it is not known yet. Raises KafkaError."""
        state = self.subscriptions.state(key)
        self._raise_errors()
        given = self.commits.given.get(key)
        if given is not None:
            return given.offset
        return state.position.offset if state.phase is Phase.FETCHING and state.position is not None else None

    def lag(self, key: TopicPartition) -> int | None:
        """Return the number of records after the position, or None if it is not known. Then the end is looked up in the background."""
        state = self.subscriptions.state(key)
        end = state.stable_offset if self.options.is_committed else state.high_watermark
        if end is None:
            if not state.end_asked:
                state.end_asked = True
                self.offsets.look_up({key: LATEST})
            return None
        return None if state.position is None else end - state.position.offset

    # polls

    def begin_poll(self, now_ms: float) -> None:
        """The program polls: it has taken all records of the last poll."""
        self._before = {}
        if self.subscriptions.kind is Kind.NONE:
            raise UsageError("nothing to poll: subscribe to topics or assign partitions first")
        if self.group is not None:
            self.group.polled(now_ms)

    def poll(self, now_ms: float) -> ConsumerRecords | None:
        """Return records, or None if none are there. Raises KafkaError."""
        return self.collector.collect(now_ms) if self._is_ready(now_ms) else None

    def poll_parts(self, now_ms: float) -> list[Fetched] | None:
        """Return records with their batches, or None if none are there. Raises KafkaError."""
        return (self.collector.collect_parts(now_ms) or None) if self._is_ready(now_ms) else None

    def _is_ready(self, now_ms: float) -> bool:
        """Do the work of a poll before its records are collected. Returns whether there may be any. Raises KafkaError."""
        self._raise_errors()
        self._before = {}
        if self.group is not None:
            # Before records are collected: a commit before a rebalance must not cover records that the program has not got yet.
            self.group.polled(now_ms)
            self._early += self.group.turn(now_ms, in_poll=True)
        if self.call is not None:
            return False
        self.commits.auto_commit(now_ms)
        self.offsets.take_leaders()  # records before a position that needs validation now are not returned
        self.update_positions(now_ms)
        if self.fetcher.completed:
            partitions = self.subscriptions.partitions
            before = {one.key: state.position for one in self.fetcher.completed if (state := partitions.get(one.key)) is not None}
            self._before = {key: position for key, position in before.items() if position is not None}
            return True
        return False

    def undo(self) -> None:
        """Return to the positions before the last `poll`, because its records did not reach the program."""
        for key, position in self._before.items():
            state = self.subscriptions.partitions.get(key)
            if state is not None and state.position is not None and state.position.offset > position.offset:
                state.seek(position)
        self._before = {}

    def give_back(self) -> None:
        """Let records that the program has not taken be the next ones (`commits.given`)."""
        given = self.commits.given
        for key, one in given.items():
            state = self.subscriptions.partitions.get(key)
            if state is not None and state.phase is Phase.FETCHING and state.position is not None and state.position.offset > one.offset:
                state.seek(Position(one.offset, one.leader_epoch, state.position.leader))
        given.clear()

    @property
    def call(self) -> ListenerCall | None:
        """The listener's call that the driver has to make."""
        return None if self.group is None else self.group.call

    def _raise_errors(self) -> None:
        error = self.offsets.take_error() or self.coordinator.take_error()
        if error is None and self.group is not None:
            error, self.group.error = self.group.error, None
        if error is None:
            error = self._topic_error()
        if error is not None:
            raise error

    def _topic_error(self) -> KafkaError | None:
        """Return the error of a topic that no retry heals: its name is not allowed, or the consumer may not read it."""
        metadata = self.metadata
        error = metadata.error
        if error is not None and not error.retriable:
            metadata.error = None
            return as_kafka(error)
        for topic in list(metadata.cluster.topic_errors):
            found = metadata.topic_error(topic)
            if found is not None and not found.retriable and topic in self.subscriptions.metadata_topics():
                del metadata.cluster.topic_errors[topic]
                metadata.want()
                return as_kafka(found)
        return None

    def update_positions(self, now_ms: float) -> None:
        """Find the positions of partitions that have none: from committed offsets, then from auto.offset.reset."""
        subscriptions = self.subscriptions
        missing = subscriptions.initializing()
        if not missing:
            return
        if self.options.group_id is not None:
            found = self.commits.initialize(now_ms)
            if found is None:
                return
            for key, one in found.items():
                state = subscriptions.partitions.get(key)
                if one is not None:
                    self.metadata.see_epoch(key, one.leader_epoch)
                if one is not None and state is not None and state.phase is Phase.INITIALIZING:
                    leader = self.metadata.cluster.leaders.get(key)
                    state.seek_unvalidated(
                        Position(one.offset, one.leader_epoch) if leader is None else Position(one.offset, one.leader_epoch, leader)
                    )
            self.offsets.forget_leaders()
            missing = [key for key in subscriptions.initializing() if key in found]
        if missing and subscriptions.reset is None:
            names = ", ".join(f"{key.topic}-{key.partition}" for key in missing)
            raise NoOffsetForPartitionError(f"no offset is committed, and auto.offset.reset is none: {names}", missing)
        for key in missing:
            assert subscriptions.reset is not None
            subscriptions.partitions[key].request_reset(subscriptions.reset)

    # turns

    def turn(self, now_ms: float, *, in_poll: bool) -> tuple[list[Outgoing], float]:
        """Return the requests to send now, and the maximum time until the next turn."""
        if self._version != self.metadata.version:
            self._version = self.metadata.version
            self._match()
        requests, wait_ms = self.metadata.turn(self._links, now_ms)
        self._metadata_ms = now_ms + wait_ms
        if self._early:
            requests += self._early
            self._early = []
        if self.group is not None:
            requests += self.group.turn(now_ms, in_poll=in_poll and not self._before)
            self._note_identity()
        requests += self.coordinator.turn(now_ms)
        requests += self.topics.turn(now_ms)
        requests += self.offsets.turn(now_ms)
        requests += self.fetcher.turn(now_ms)
        return requests, max(self._wake_ms(now_ms, in_poll=in_poll) - now_ms, 0.0) if not requests else 0.0

    def _wake_ms(self, now_ms: float, *, in_poll: bool) -> float:
        wake_ms = min(self.coordinator.wake_ms(), self.offsets.wake_ms(), self.topics.wake_ms(now_ms), self._metadata_ms)
        if in_poll:
            wake_ms = min(wake_ms, self.commits.wake_ms())
        if self.group is not None:
            if in_poll and self.group.error is not None:
                return now_ms  # this poll raises it, and not the next one
            wake_ms = min(wake_ms, self.group.wake_ms(in_poll=in_poll))
        return wake_ms

    _metadata_ms: float = FOREVER
    _identity = Identity()

    # commits

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the identity of the member, for a producer's transaction."""
        self.ensure_group()
        self._note_identity()
        identity = self._identity
        return ConsumerGroupMetadata(str(self.options.group_id), identity.generation_id, identity.member_id, self.options.instance_id)

    def _note_identity(self) -> None:
        """Keep the last identity. As in Kafka, a rebalance or the loss of the membership does not change what the program sees."""
        self._identity = self.commits.member.identity() or self._identity

    def commit(self, offsets: Offsets | None, deadline_ms: float) -> Outcome:
        """Commit offsets, or the positions, until it succeeds or the deadline is over."""
        self.ensure_group()
        return self.commits.commit(self.commits.positions() if offsets is None else offsets, deadline_ms, retries=True)

    def close_sessions(self) -> list[Outgoing]:
        """Return the requests that end the fetch sessions."""
        return self.fetcher.close()

    def leave(self, membership: GroupMembership, reason: str, now_ms: float) -> list[Outgoing]:
        """Return the requests that leave the group."""
        early, self._early = self._early, []  # not after the request that leaves
        return early if self.group is None else early + self.group.leave(membership, reason, now_ms)


def as_times(found: Mapping[TopicPartition, Found]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Return the outcome of a lookup of times."""
    return {key: None if one.offset < 0 else OffsetAndTimestamp(one.offset, one.timestamp, one.epoch) for key, one in found.items()}
