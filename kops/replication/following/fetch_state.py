"""A follower's progress in a partition, and a fetcher's interface to the local replicas.

Source: Kafka's PartitionFetchState, ReplicaState, OffsetTruncationState, InitialFetchState; AbstractFetcherThread's abstract methods.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from kops.protocol.messages.fetch_response import PartitionData
    from kops.records.log_offsets import TopicPartition
    from kops.replication.log import AppendInfo


class Phase(Enum):
    """The next step: find the leader's offsets, truncate, or fetch."""

    SEEKING = auto()
    TRUNCATING = auto()
    FETCHING = auto()


@mypyc_attr(acyclic=True)
class FetchState:
    """The state of a partition in a fetcher. `lag` is None until the first answer. `due_ms` is the end of a delay after an error.

    It is not changed.
    """

    __slots__ = ("current_leader_epoch", "due_ms", "fetch_offset", "lag", "last_fetched_epoch", "phase", "topic_id")

    def __init__(
        self,
        topic_id: bytes,
        fetch_offset: int,
        lag: int | None,
        current_leader_epoch: int,
        phase: Phase,
        last_fetched_epoch: int | None,
        due_ms: int = 0,
    ) -> None:
        self.topic_id = topic_id
        self.fetch_offset = fetch_offset
        self.lag = lag
        self.current_leader_epoch = current_leader_epoch
        self.phase = phase
        self.last_fetched_epoch = last_fetched_epoch
        self.due_ms = due_ms

    def with_topic_id(self, topic_id: bytes) -> FetchState:
        """Return a copy with another id of the topic."""
        epoch = self.current_leader_epoch
        return FetchState(topic_id, self.fetch_offset, self.lag, epoch, self.phase, self.last_fetched_epoch, self.due_ms)

    def delayed(self, due_ms: int) -> FetchState:
        """Return a copy that waits until then."""
        epoch = self.current_leader_epoch
        return FetchState(self.topic_id, self.fetch_offset, self.lag, epoch, self.phase, self.last_fetched_epoch, due_ms)

    def moved(self, fetch_offset: int, phase: Phase, last_fetched_epoch: int | None) -> FetchState:
        """Return a copy with another next step at this offset."""
        return FetchState(self.topic_id, fetch_offset, self.lag, self.current_leader_epoch, phase, last_fetched_epoch, self.due_ms)

    def is_delayed(self, now_ms: int) -> bool:
        """Whether it waits after an error."""
        return self.due_ms > now_ms

    def is_ready(self, phase: Phase, now_ms: int) -> bool:
        """Whether this step is due now."""
        return self.phase is phase and self.due_ms <= now_ms

    @property
    def is_replica_in_sync(self) -> bool:
        """Whether it had all records at the last answer."""
        return self.lag is not None and self.lag <= 0


class InitialFetchState(NamedTuple):
    """The start of following. With a negative `offset`, the fetcher asks the leader."""

    topic_id: bytes
    current_leader_epoch: int
    offset: int


class Truncation(NamedTuple):
    """The offset at which to truncate a log, and whether that completes the truncation."""

    offset: int
    is_complete: bool


class Replicas(Protocol):
    """The logs that a fetcher fills. Every method may raise ApiError if the partition is gone, and the errors of a log."""

    def latest_epoch(self, key: TopicPartition) -> int | None: ...
    def log_start_offset(self, key: TopicPartition) -> int: ...
    def log_end_offset(self, key: TopicPartition) -> int: ...
    def end_offset_for_epoch(self, key: TopicPartition, epoch: int) -> tuple[int, int] | None: ...
    def append(self, key: TopicPartition, fetch_offset: int, leader_epoch: int, data: PartitionData) -> AppendInfo | None: ...
    def truncate(self, key: TopicPartition, truncation: Truncation) -> None: ...
    def truncate_fully_and_start_at(self, key: TopicPartition, offset: int) -> None: ...
