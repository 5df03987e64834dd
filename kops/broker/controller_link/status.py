"""What a node tells of itself: the state of its broker, how far a recovery is, where it listens.

Source: Kafka's BrokerState, and of LogManager the metrics remainingLogsToRecover and remainingSegmentsToRecover.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kops.storage.start.log_dirs import LogDirStart


class BrokerState(Enum):
    """Kafka's states of a broker and their numbers in the metric BrokerState."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


@dataclass(frozen=True, slots=True)
class DirRecovery:
    """How many logs of a directory are still to be loaded, and how many segments of those that are recovered now."""

    log_dir: str
    remaining_logs: int
    remaining_segments: int


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node at a moment. `listeners` are those that are bound, by name; `error` is why it ended, None where it did not fail."""

    state: BrokerState
    node_id: int
    cluster_id: str | None = None
    listeners: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    recovery: tuple[DirRecovery, ...] = ()
    error: str | None = None

    def document(self, pid: int) -> dict[str, Any]:
        """What the status file says."""
        recovery = {
            found.log_dir: {"remaining_logs": found.remaining_logs, "remaining_segments": found.remaining_segments}
            for found in self.recovery
        }
        return {
            "state": self.state.name,
            "pid": pid,
            "node_id": self.node_id,
            "cluster_id": self.cluster_id,
            "listeners": {name: list(address) for name, address in self.listeners.items()},
            "recovery": recovery,
            "error": self.error,
        }


def recovery_of(starts: Iterable[LogDirStart]) -> tuple[DirRecovery, ...]:
    """How far the start of the log directories is."""
    return tuple(DirRecovery(start.path, start.remaining_logs, start.remaining_segments) for start in starts)
