"""Tracks which brokers are alive, how far each has read the metadata log, and which may shut down.

Source: Kafka's BrokerHeartbeatManager, BrokerHeartbeatTracker, BrokerControlState. None of this is in the log, so a new leader starts
without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.protocol.messages import BrokerHeartbeatRequest

_NO_OFFSET: Final = -1
_MAX_OFFSET: Final = 2**63 - 1


class BrokerState(Enum):
    """The state of a broker in the controller."""

    FENCED = auto()
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    SHUTDOWN_NOW = auto()

    @property
    def is_fenced(self) -> bool:
        """A fenced broker leads no partition and is in no ISR."""
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


@dataclass(slots=True)
class Heartbeats:
    """The last heartbeat of one broker. `controlled_shutdown_offset` is the offset of the last record that moved its partitions, or -1 if
    it is not shutting down."""

    id: int
    fenced: bool
    metadata_offset: int = _NO_OFFSET
    controlled_shutdown_offset: int = _NO_OFFSET

    @property
    def is_shutting_down(self) -> bool:
        """Whether the broker is in controlled shutdown."""
        return self.controlled_shutdown_offset >= 0

    @property
    def is_active(self) -> bool:
        """Whether other brokers wait for it."""
        return not self.fenced and not self.is_shutting_down

    @property
    def state(self) -> BrokerState:
        """The state that the controller keeps. It is never SHUTDOWN_NOW, which is only an answer to a heartbeat."""
        if self.is_shutting_down:
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.FENCED if self.fenced else BrokerState.UNFENCED


class HeartbeatManager:
    """All brokers that the controller knows. Times are in ms, of one monotonic clock."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._brokers: dict[int, Heartbeats] = {}
        self._contact_times: dict[tuple[int, int], int] = {}

    def contact(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """Record that a heartbeat arrived, even if it is not applied."""
        self._contact_times[broker_id, epoch] = now_ms

    def has_valid_session(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Whether the broker sent a heartbeat within the session timeout."""
        contact_ms = self._contact_times.get((broker_id, epoch))
        return contact_ms is not None and not self._is_expired(contact_ms, now_ms)

    def take_expired(self, now_ms: int) -> tuple[int, int] | None:
        """Return a broker (id and epoch) whose session has ended, and stop watching it."""
        for key, contact_ms in self._contact_times.items():
            if self._is_expired(contact_ms, now_ms):
                del self._contact_times[key]
                return key
        return None

    def _is_expired(self, contact_ms: int, now_ms: int) -> bool:
        return contact_ms + self._session_timeout_ms < now_ms

    def fence(self, broker_id: int) -> None:
        """Record that the broker is fenced, whatever state it requested."""
        broker = self._brokers.get(broker_id)
        if broker is not None:
            broker.fenced = True

    def remove(self, broker_id: int) -> None:
        """Remove a broker."""
        self._brokers.pop(broker_id, None)

    def register(self, broker_id: int, *, fenced: bool) -> None:
        """Handle a registration or a change of it."""
        broker = self._brokers.get(broker_id)
        offset = _NO_OFFSET
        if broker is None:
            self._brokers[broker_id] = Heartbeats(broker_id, fenced)
        elif broker.fenced != fenced:
            offset = broker.metadata_offset
        self.touch(broker_id, fenced=fenced, metadata_offset=offset)

    def touch(self, broker_id: int, *, fenced: bool, metadata_offset: int) -> None:
        """Set the broker's new state."""
        broker = self._brokers[broker_id]
        broker.fenced = fenced
        broker.metadata_offset = metadata_offset
        if fenced:
            broker.controlled_shutdown_offset = _NO_OFFSET

    def begin_controlled_shutdown(self, broker_id: int, offset: int) -> None:
        """Record that the broker is shutting down. It may stop once all active brokers have read up to `offset`. Only the first offset
        counts."""
        broker = self._brokers[broker_id]
        assert not broker.fenced, "a fenced broker needs no controlled shutdown"
        if not broker.is_shutting_down:
            broker.controlled_shutdown_offset = offset

    def usable(self) -> Iterable[Heartbeats]:
        """Return the brokers on which new replicas can be placed, including fenced ones."""
        return (broker for broker in self._brokers.values() if not broker.is_shutting_down)

    def next_state(
        self, request: BrokerHeartbeatRequest, register_offset: int, has_leaderships: Callable[[], bool]
    ) -> tuple[BrokerState, BrokerState]:
        """Return the broker's state before and after a heartbeat. `register_offset` is the offset of its registration in the log."""
        broker = self._brokers[request.broker_id]
        return broker.state, self._next_state(broker, request, register_offset, has_leaderships)

    def _next_state(
        self, broker: Heartbeats, request: BrokerHeartbeatRequest, register_offset: int, has_leaderships: Callable[[], bool]
    ) -> BrokerState:
        if broker.state is BrokerState.FENCED:
            if request.want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            caught_up = request.current_metadata_offset >= register_offset
            return BrokerState.UNFENCED if caught_up and not request.want_fence else BrokerState.FENCED
        if broker.state is BrokerState.UNFENCED:
            if request.want_fence:
                return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
            if request.want_shut_down:
                return BrokerState.CONTROLLED_SHUTDOWN if has_leaderships() else BrokerState.SHUTDOWN_NOW
            return BrokerState.UNFENCED
        if has_leaderships() or broker.controlled_shutdown_offset > self._lowest_active_offset():
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.SHUTDOWN_NOW

    def _lowest_active_offset(self) -> int:
        return min((broker.metadata_offset for broker in self._brokers.values() if broker.is_active), default=_MAX_OFFSET)
