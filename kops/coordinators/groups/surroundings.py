"""Shared by all parts of a shard: the groups, the runtime's timers, the time, the settings and the newest metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kops.coordinators.groups.config import GroupCoordinatorConfig, GroupSettings
from kops.coordinators.groups.store import GroupStore
from kops.coordinators.runtime.image import CoordinatorDelta, CoordinatorImage
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.result import CoordinatorResult
from kops.coordinators.runtime.timers import CoordinatorExecutor, CoordinatorTimer
from kops.protocol.declaration import Message
from kops.timeline import Timeline

EMPTY_RESULT: Final[CoordinatorResult[None]] = CoordinatorResult(append_promise=Promise.of(None), replay_records=False)
"""A result without records. As in Kafka, some callers compare a result with this one by identity."""


@dataclass(slots=True)
class Surroundings:
    """The arguments of a shard, and the metadata image, which `on_loaded` sets first."""

    timeline: Timeline
    store: GroupStore
    timer: CoordinatorTimer
    executor: CoordinatorExecutor
    now_ms: Callable[[], int]
    new_id: Callable[[], str]
    config: GroupCoordinatorConfig
    group_settings: GroupSettings
    image: CoordinatorImage | None = None

    def group_setting(self, group_id: str, name: str, default: int) -> int:
        """Return a group's own setting, or else the broker's default."""
        settings = self.group_settings(group_id)
        value = None if settings is None else settings.get(name)
        return default if value is None else int(value)


class GroupManager(Protocol):
    """The part of a shard that handles one kind of groups."""

    @property
    def replays(self) -> Mapping[type[Message], Callable[[Any, Any], None]]:
        """The function for each type of record key, called with key and value (None for a tombstone) when such a record is replayed."""

    def on_loaded(self) -> None:
        """Start timers, because all records have been replayed."""

    def on_metadata_update(self, delta: CoordinatorDelta | None, image: CoordinatorImage) -> None:
        """Handle new metadata. The first metadata comes without a delta."""

    def on_unloaded(self) -> None:
        """Answer waiting requests, because the shard is being unloaded."""
