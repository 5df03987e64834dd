"""Replay of records that consumer, share and streams groups have alike (from Kafka's GroupMetadataManager)."""

from __future__ import annotations

from typing import Any, Protocol

from kops.coordinators.groups.modern.assigned_group import AssignedGroup
from kops.errors import ApiError


class TargetAssignmentEpoch(Protocol):
    """The value of a record with the epoch of a target assignment."""

    assignment_epoch: int
    assignment_timestamp: int


def broken(text: str) -> ApiError:
    """Return the error for a state in which Kafka throws IllegalStateException."""
    return ApiError("UNKNOWN_SERVER_ERROR", text)


def replay_target_assignment_epoch(group: AssignedGroup[Any, Any], value: TargetAssignmentEpoch | None) -> None:
    """Set the epoch and time of a group's target assignment. A tombstone (None) comes after those of the members.

    Raises ApiError UNKNOWN_SERVER_ERROR if members still have targets.
    """
    if value is not None:
        group.set_assignment_metadata(value.assignment_epoch, value.assignment_timestamp)
        return
    if group.target_assignments:
        raise broken(
            f"Received a tombstone record to delete target assignment of {group.group_id} but the assignment still has "
            f"{len(group.target_assignments)} members."
        )
    group.set_assignment_metadata(-1, 0)
