"""The status of a node: the state of its broker, the progress of a recovery, its listeners.

Source: Kafka's BrokerState, and LogManager's metrics remainingLogsToRecover and remainingSegmentsToRecover.
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
    """The number of logs of a directory still to load, and of segments still to recover in the logs being recovered now."""

    log_dir: str
    remaining_logs: int
    remaining_segments: int


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The status of a node at one moment. `listeners` are the bound ones, by name. `error` is the reason why it failed, or None."""

    state: BrokerState
    node_id: int
    cluster_id: str | None = None
    listeners: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    recovery: tuple[DirRecovery, ...] = ()
    error: str | None = None

    def document(self, pid: int) -> dict[str, Any]:
        """The contents of the status file."""
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
    """The progress of the start of the log directories."""
    return tuple(DirRecovery(start.path, start.remaining_logs, start.remaining_segments) for start in starts)
