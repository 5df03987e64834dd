"""One shard of the group coordinator (Kafka's GroupCoordinatorShard): it takes each request to the manager that knows the group's kind.

The runtime sets `timeline.offset` to the offset of the next record before it calls a method that may write: some methods change groups
before their records are replayed, and such a change must be undone with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kops.coordinators.groups.config import GroupCoordinatorConfig, GroupSettings
from kops.coordinators.groups.store import GroupStore
from kops.coordinators.groups.surroundings import GroupManager, Surroundings
from kops.coordinators.runtime.image import CoordinatorDelta, CoordinatorImage
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.timers import CoordinatorExecutor, CoordinatorTimer
from kops.protocol.declaration import Message
from kops.timeline import Timeline

GROUP_EXPIRATION_KEY: Final = "expire-group-metadata"


class GroupCoordinatorShard:
    """The groups whose ids belong to one partition of `__consumer_offsets`, and their offsets.

    `new_id` gives a new random UUID as Java writes it (`123e4567-e89b-42d3-a456-426614174000`).
    """

    def __init__(
        self,
        timeline: Timeline,
        timer: CoordinatorTimer,
        executor: CoordinatorExecutor,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        config: GroupCoordinatorConfig,
        group_settings: GroupSettings,
    ) -> None:
        store = GroupStore(timeline)
        self._around = Surroundings(timeline, store, timer, executor, now_ms, new_id, config, group_settings)
        self._managers: list[GroupManager] = []
        self._replays: dict[type[Message], Callable[[Any, Any], None]] = {}
        for manager in self._managers:
            self._replays.update(manager.replays)

    def on_loaded(self, image: CoordinatorImage) -> None:
        """All records were replayed: set timers."""
        self._around.image = image
        for manager in self._managers:
            manager.on_metadata_update(None, image)
        for manager in self._managers:
            manager.on_loaded()

    def on_metadata_update(self, delta: CoordinatorDelta, image: CoordinatorImage) -> None:
        """The metadata has changed."""
        self._around.image = image
        for manager in self._managers:
            manager.on_metadata_update(delta, image)

    def on_unloaded(self) -> None:
        """Another broker leads the partition: tell who waits."""
        for manager in self._managers:
            manager.on_unloaded()

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Change the state as the record says."""
        self._replays[type(record.key)](record.key, record.value)
