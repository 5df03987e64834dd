"""The subscription of a consumer, and the state of each assigned partition: position, pause, reset, validation, replica.

Source: Kafka's SubscriptionState (TopicPartitionState, FetchStates). Times are ms of the client's clock.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from kops.client.consumer.records import OffsetAndMetadata
from kops.client.metadata import Leader
from kops.errors import UsageError

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Collection, Iterable

    from kops.client.consumer.options import Reset
    from kops.records.log_offsets import TopicPartition

NO_LEADER = Leader(-1, -1)


class Position(NamedTuple):
    """The next record of a partition, the epoch of the previous one (None: unknown), and the leader for which it was validated."""

    offset: int
    epoch: int | None = None
    leader: Leader = NO_LEADER


class Truncation(NamedTuple):
    """A position beyond the end of its epoch, and the first offset that differs, if it is known."""

    key: TopicPartition
    position: Position
    divergent: OffsetAndMetadata | None


class Phase(Enum):
    """What is known about the position of a partition."""

    INITIALIZING = auto()  # the committed offset is needed
    FETCHING = auto()
    RESETTING = auto()  # the offset of a reset is needed
    VALIDATING = auto()  # the end of the position's epoch is needed


class PartitionState:
    """An assigned partition."""

    __slots__ = (
        "end_asked",
        "failure",
        "has_pending_call",
        "high_watermark",
        "is_paused",
        "is_revoking",
        "log_start",
        "phase",
        "position",
        "replica",
        "replica_until_ms",
        "reset",
        "retry_ms",
        "stable_offset",
    )

    def __init__(self) -> None:
        self.phase = Phase.INITIALIZING
        self.position: Position | None = None
        self.is_paused = False
        self.is_revoking = False
        self.has_pending_call = False  # the listener was not told yet
        self.reset: Reset | None = None
        self.retry_ms = 0.0
        self.high_watermark: int | None = None
        self.stable_offset: int | None = None
        self.log_start: int | None = None
        self.replica: int | None = None
        self.replica_until_ms = 0.0
        self.end_asked = False
        self.failure: str | None = None  # the error of the last fetch

    @property
    def is_fetchable(self) -> bool:
        """Whether records of this partition may be returned now."""
        return self.phase is Phase.FETCHING and not self.is_paused and not self.is_revoking and not self.has_pending_call

    def seek(self, position: Position) -> None:
        """Continue at a position that needs no validation."""
        self.phase, self.position = Phase.FETCHING, position
        self.reset, self.retry_ms = None, 0.0

    def seek_unvalidated(self, position: Position) -> None:
        """Continue at a position. If epochs are known, it is validated first."""
        self.seek(position)
        self._validate(position)

    def _validate(self, position: Position) -> None:
        has_epochs = position.epoch is not None and position.leader.epoch >= 0
        self.phase, self.position = Phase.VALIDATING if has_epochs else Phase.FETCHING, position
        self.retry_ms = 0.0

    def use_leader(self, leader: Leader, *, can_validate: bool) -> None:
        """Take a new leader of the partition. The position is validated again, unless the leader is too old for it."""
        if self.phase is Phase.RESETTING or leader.node_id < 0 or self.position is None or self.position.leader == leader:
            return
        position = self.position._replace(leader=leader)
        if can_validate:
            self._validate(position)
            self.replica = None
        else:
            self.phase, self.position, self.retry_ms = Phase.FETCHING, position, 0.0

    def request_reset(self, reset: Reset) -> None:
        """Forget the position, and look for the offset of a reset."""
        self.phase, self.position = Phase.RESETTING, None
        self.reset, self.retry_ms = reset, 0.0

    def read_replica(self, now_ms: float) -> int | None:
        """Return the replica that the leader prefers for this client, until its time is over."""
        if self.replica is not None and now_ms > self.replica_until_ms:
            self.replica = None
        return self.replica

    def prefer(self, replica: int, until_ms: float) -> None:
        """Read from another replica than the leader for some time."""
        if replica != self.replica:
            self.replica, self.replica_until_ms = replica, until_ms

    def clear_replica(self) -> bool:
        """Return to the leader. Returns whether another replica was preferred."""
        had = self.replica is not None
        self.replica = None
        return had


class Kind(Enum):
    """The kinds of subscriptions."""

    NONE = auto()
    TOPICS = auto()
    PATTERN = auto()  # a regular expression of Python, which the client matches
    SERVER_PATTERN = auto()  # a regular expression of RE2, which the broker matches
    ASSIGNED = auto()


class Subscriptions:
    """What a consumer reads. `reset` is that of auto.offset.reset, None for "none"."""

    def __init__(self, reset: Reset | None) -> None:
        self.reset = reset
        self.kind = Kind.NONE
        self.topics: frozenset[str] = frozenset()
        self.group_topics: frozenset[str] = frozenset()  # of all members, if this one divides the partitions
        self.pattern: re.Pattern[str] | None = None
        self.server_pattern: str | None = None
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.changes = 0  # counts the assignments

    @property
    def is_automatic(self) -> bool:
        """Whether a group assigns the partitions."""
        return self.kind in (Kind.TOPICS, Kind.PATTERN, Kind.SERVER_PATTERN)

    def set_kind(self, kind: Kind) -> None:
        """Decide between subscribing and assigning. Raises UsageError: only `unsubscribe` changes that."""
        if self.kind not in (Kind.NONE, kind):
            raise UsageError(
                "subscribe to topics, to a pattern, or assign partitions: only one of them; call unsubscribe before another one"
            )
        self.kind = kind

    def assign(self, keys: Iterable[TopicPartition]) -> None:
        """Replace the assigned partitions. Those that stay keep their state."""
        self.partitions = {key: self.partitions.get(key) or PartitionState() for key in keys}
        self.changes += 1

    def unsubscribe(self) -> None:
        """Forget everything."""
        self.kind = Kind.NONE
        self.topics = self.group_topics = frozenset()
        self.pattern = self.server_pattern = None
        self.assign(())

    def metadata_topics(self) -> set[str]:
        """Return the topics whose metadata is needed."""
        if self.kind is Kind.ASSIGNED:
            return {key.topic for key in self.partitions}
        if self.kind is Kind.SERVER_PATTERN:
            return {key.topic for key in self.partitions} | self.group_topics
        return set(self.topics | self.group_topics)

    def state(self, key: TopicPartition) -> PartitionState:
        """Return the state of an assigned partition. Raises UsageError for another one."""
        found = self.partitions.get(key)
        if found is None:
            raise UsageError(f"{key.topic}-{key.partition} is not assigned to this consumer")
        return found

    def is_fetchable(self, key: TopicPartition) -> bool:
        """Whether records of a partition may be returned now."""
        state = self.partitions.get(key)
        return state is not None and state.is_fetchable and (self.kind is not Kind.TOPICS or key.topic in self.topics)

    def move_to_end(self, key: TopicPartition) -> None:
        """Let all other partitions come first in the next fetch."""
        state = self.partitions.pop(key, None)
        if state is not None:
            self.partitions[key] = state

    def having(self, test: Callable[[PartitionState], bool]) -> list[TopicPartition]:
        """Return the partitions whose state passes a test."""
        return [key for key, state in self.partitions.items() if test(state)]

    def initializing(self) -> list[TopicPartition]:
        """Return the partitions that need a committed offset or a reset."""
        return self.having(lambda state: state.phase is Phase.INITIALIZING and not state.is_revoking)

    def due(self, phase: Phase, now_ms: float) -> list[TopicPartition]:
        """Return the partitions in a phase for which a request may be sent."""
        return self.having(lambda state: state.phase is phase and now_ms >= state.retry_ms)

    def retry_at(self, keys: Collection[TopicPartition], retry_ms: float) -> None:
        """Let no further request be sent for these partitions before a time."""
        for key in keys:
            state = self.partitions.get(key)
            if state is not None:
                state.retry_ms = retry_ms

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions that an automatic commit commits."""
        return {
            key: OffsetAndMetadata(state.position.offset, "", state.position.epoch)
            for key, state in self.partitions.items()
            if state.phase is Phase.FETCHING and state.position is not None
        }

    def complete_validation(self, key: TopicPartition, asked: Position, epoch: int, end_offset: int) -> Truncation | None:
        """Handle the end of an epoch, -1 if the leader does not know the epoch. Returns the truncation if the program has to decide."""
        state = self.partitions.get(key)
        if state is None or state.phase is not Phase.VALIDATING or state.position != asked:
            return None
        if end_offset < 0 or epoch < 0:
            if self.reset is None:
                return Truncation(key, asked, None)
            state.request_reset(self.reset)
        elif end_offset < asked.offset:
            if self.reset is None:
                return Truncation(key, asked, OffsetAndMetadata(end_offset, "", epoch))
            state.seek(Position(end_offset, epoch, asked.leader))
        else:
            state.phase, state.retry_ms = Phase.FETCHING, 0.0
        return None
