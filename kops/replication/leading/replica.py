"""A leader's state of a follower: how far it has fetched, and when it was last caught up (Kafka Replica, ReplicaState)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from kops.errors import ApiError
from kops.records.log_offsets import UNKNOWN_OFFSET, UNKNOWN_OFFSET_METADATA, LogOffsetMetadata

if TYPE_CHECKING:
    from kops.replication.log import Brokers

BYPASS_BROKER_EPOCH: Final = -1
"""The broker epoch of a fetch whose epoch is not compared."""


@mypyc_attr(acyclic=True)
class ReplicaState:
    """A follower's state: offsets (-1: unknown), times in ms. `broker_epoch` is None until it has fetched. It is not changed."""

    __slots__ = (
        "broker_epoch",
        "last_caught_up_time_ms",
        "last_fetch_leader_log_end_offset",
        "last_fetch_time_ms",
        "log_end_offset_metadata",
        "log_start_offset",
    )

    def __init__(
        self,
        log_start_offset: int = UNKNOWN_OFFSET,
        log_end_offset_metadata: LogOffsetMetadata = UNKNOWN_OFFSET_METADATA,
        last_fetch_leader_log_end_offset: int = 0,
        last_fetch_time_ms: int = 0,
        last_caught_up_time_ms: int = 0,
        broker_epoch: int | None = None,
    ) -> None:
        self.log_start_offset = log_start_offset
        self.log_end_offset_metadata = log_end_offset_metadata
        self.last_fetch_leader_log_end_offset = last_fetch_leader_log_end_offset
        self.last_fetch_time_ms = last_fetch_time_ms
        self.last_caught_up_time_ms = last_caught_up_time_ms
        self.broker_epoch = broker_epoch

    def _values(self) -> tuple[object, ...]:
        times = (self.last_fetch_time_ms, self.last_caught_up_time_ms)
        return self.log_start_offset, self.log_end_offset_metadata, self.last_fetch_leader_log_end_offset, times, self.broker_epoch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReplicaState) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"ReplicaState{self._values()}"

    @property
    def log_end_offset(self) -> int:
        """How far it has fetched."""
        return self.log_end_offset_metadata.message_offset

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether it is at the leader's end, or was at most `max_lag_ms` ago."""
        return leader_end_offset == self.log_end_offset or now_ms - self.last_caught_up_time_ms <= max_lag_ms


class FetchClock:
    """The time of a follower's last fetch within a session. It counts for all resting partitions of the session."""

    __slots__ = ("time_ms",)

    def __init__(self) -> None:
        self.time_ms = 0


class Replica:
    """A follower of a partition that this broker leads."""

    __slots__ = ("_brokers", "_clock", "_state", "broker_id", "end")

    def __init__(self, broker_id: int, brokers: Brokers) -> None:
        self.broker_id = broker_id
        self._state = ReplicaState()
        self.end = UNKNOWN_OFFSET_METADATA
        """How far it has fetched, as in its state. A rest does not change it."""
        self._clock: FetchClock | None = None
        self._brokers = brokers

    @property
    def state(self) -> ReplicaState:
        """Its current state. A resting follower was at the leader's end at each fetch of its session."""
        clock = self._clock
        if clock is not None and clock.time_ms > self._state.last_fetch_time_ms:
            caught_up_ms = max(clock.time_ms, self._state.last_caught_up_time_ms)
            known = self._state
            self._state = ReplicaState(
                known.log_start_offset,
                known.log_end_offset_metadata,
                known.last_fetch_leader_log_end_offset,
                clock.time_ms,
                caught_up_ms,
                known.broker_epoch,
            )
        return self._state

    @state.setter
    def state(self, state: ReplicaState) -> None:
        self._state = state
        self.end = state.log_end_offset_metadata
        self._clock = None

    def rest(self, clock: FetchClock) -> None:
        """Begin a rest: it is in sync, at the leader's end. From now on, `clock` has the time of its last fetch."""
        self._clock = clock

    def end_rest(self, clock: FetchClock) -> None:
        """End the rest. From now on, each fetch updates the state again."""
        if self._clock is clock:
            self._state = self.state
            self._clock = None

    def update_fetch_state(
        self, fetched_up_to: LogOffsetMetadata, log_start_offset: int, fetch_time_ms: int, leader_end_offset: int, broker_epoch: int
    ) -> None:
        """Process a fetch from `fetched_up_to` at a time when the leader's log ended at `leader_end_offset`.

        The follower counts as caught up at this fetch if it has reached the leader's current end. It counts as caught up at the previous
        fetch if it has reached the leader's end at that time. So a follower that is always slightly behind a busy leader stays in sync.
        Raises ApiError NOT_LEADER_OR_FOLLOWER for a fetch with an earlier broker epoch.
        """
        state = self._state if self._clock is None else self.state
        known_epoch = self._brokers.alive_broker_epoch(self.broker_id)
        if broker_epoch != BYPASS_BROKER_EPOCH and known_epoch is not None and known_epoch > broker_epoch:
            reason = f"Received stale fetch state update. broker epoch={broker_epoch} vs expected={state.broker_epoch}"
            raise ApiError("NOT_LEADER_OR_FOLLOWER", reason)
        caught_up_ms = state.last_caught_up_time_ms
        if fetched_up_to.message_offset >= leader_end_offset:
            caught_up_ms = max(caught_up_ms, fetch_time_ms)
        elif fetched_up_to.message_offset >= state.last_fetch_leader_log_end_offset:
            caught_up_ms = max(caught_up_ms, state.last_fetch_time_ms)
        self.state = ReplicaState(
            log_start_offset,
            fetched_up_to,
            max(leader_end_offset, state.last_fetch_leader_log_end_offset),
            fetch_time_ms,
            caught_up_ms,
            broker_epoch,
        )

    def reset(self, now_ms: int, leader_end_offset: int, *, is_new_leader: bool, is_in_sync: bool) -> None:
        """Begin a new leader epoch. In-sync replicas count as caught up now, all others as never, so that they do not hold back the high
        watermark.
        """
        caught_up_ms = now_ms if is_in_sync else 0
        if is_new_leader:
            self.state = ReplicaState(last_fetch_leader_log_end_offset=UNKNOWN_OFFSET, last_caught_up_time_ms=caught_up_ms)
        else:
            known = self.state
            self.state = ReplicaState(
                known.log_start_offset, known.log_end_offset_metadata, leader_end_offset, caught_up_ms, caught_up_ms, known.broker_epoch
            )
