"""Classic groups by id (from Kafka's GroupMetadataManager)."""

from __future__ import annotations

from collections.abc import Callable

from kops.coordinators.groups.classic.group import ClassicGroup
from kops.coordinators.groups.group import Group
from kops.coordinators.groups.store import GroupStore
from kops.coordinators.groups.surroundings import Surroundings
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.errors import ApiError


def get_or_create_classic_group(store: GroupStore, group_id: str, now_ms: Callable[[], int]) -> ClassicGroup:
    """Return the classic group with this id, or a new empty one. Raises ApiError GROUP_ID_NOT_FOUND for a group of another kind."""
    if store.get(group_id) is None:
        store.put(ClassicGroup(group_id, now_ms, current_state_timestamp=now_ms()))
    return existing_classic_group(store, group_id)


def existing_classic_group(store: GroupStore, group_id: str) -> ClassicGroup:
    """Return the classic group with this id. Raises ApiError GROUP_ID_NOT_FOUND."""
    return _as_classic(store.get(group_id), group_id)


def committed_classic_group(store: GroupStore, group_id: str) -> ClassicGroup:
    """Return the committed classic group with this id. Raises ApiError GROUP_ID_NOT_FOUND."""
    return _as_classic(store.committed_group(group_id), group_id)


def _as_classic(group: Group | None, group_id: str) -> ClassicGroup:
    if group is None:
        raise ApiError("GROUP_ID_NOT_FOUND", f"Classic group {group_id} not found.")
    if not isinstance(group, ClassicGroup):
        raise ApiError("GROUP_ID_NOT_FOUND", f"Group {group_id} is not a classic group.")
    return group


def create_tombstones_and_cancel_timers(around: Surroundings, group: Group, records: list[CoordinatorRecord]) -> None:
    """Append the tombstones of a group of any kind, and cancel its timers."""
    group.create_group_tombstone_records(records)
    group.cancel_timers(around.timer)


def maybe_delete_empty_classic_group(around: Surroundings, group: Group | None, records: list[CoordinatorRecord]) -> bool:
    """Append the tombstones of a classic group without members, so that a group of another kind can use its id."""
    if not isinstance(group, ClassicGroup) or not group.is_empty:
        return False
    create_tombstones_and_cancel_timers(around, group, records)
    return True
