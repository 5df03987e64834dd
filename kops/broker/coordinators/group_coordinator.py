"""The group coordinator of a broker, and the settings of groups.

Source: Kafka's GroupCoordinatorService (partitionFor) and BrokerServer.createGroupCoordinator. Its modules are
imported with the first group or the first partition of `__consumer_offsets`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kops.broker.coordinators.image_views import ImageView
from kops.broker.coordinators.on_demand import CODECS, CoordinatorOnDemand, own_linger_ms
from kops.config.values.java_hash import partition_of
from kops.errors import ApiError, KopsError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kops.broker.coordinators.group_service import GroupCoordinatorService
    from kops.broker.coordinators.share_groups import EndOffsets
    from kops.broker.coordinators.writer import StartVerification
    from kops.broker.network.events.loop import Loop
    from kops.broker.replicas.manager import ReplicaManager
    from kops.config import BrokerConfig
    from kops.coordinators.groups.shard.shard import GroupCoordinatorShard
    from kops.coordinators.runtime.timers import CoordinatorExecutor, CoordinatorTimer
    from kops.coordinators.share.persister.persister import Persister
    from kops.metadata.image.metadata_cache import MetadataCache
    from kops.metadata.image.parts.configs import ConfigurationsImage
    from kops.metadata.image.parts.topics import TopicsDelta
    from kops.records.log_offsets import TopicPartition
    from kops.timeline import Timeline

log = logging.getLogger(__name__)
R = TypeVar("R")
GROUP_TOPIC: Final = "__consumer_offsets"
_KEPT_GROUPS: Final = 4096


class GroupCoordinator(CoordinatorOnDemand["GroupCoordinatorService"]):
    """The group coordinator. `new_id` returns a random UUID in Java's format. `persister` and `end_offsets` are for share groups."""

    topic = GROUP_TOPIC
    partitions_key = "offsets.topic.num.partitions"

    def __init__(
        self,
        loop: Loop,
        config: BrokerConfig,
        replicas: ReplicaManager,
        cache: MetadataCache,
        *,
        new_id: Callable[[], str],
        start_verification: StartVerification,
        persister: Callable[[], Persister],
        end_offsets: Callable[[], EndOffsets],
    ) -> None:
        super().__init__(loop, config, replicas, cache)
        self._new_id = new_id
        self._start_verification = start_verification
        self._persister = persister
        self._end_offsets = end_offsets
        self._settings: dict[str, tuple[Mapping[str, str], Mapping[str, Any]]] = {}
        self._seen_configs: ConfigurationsImage | None = None
        self._without_settings: set[str] = set()
        """A cache of the groups without their own settings, because every heartbeat looks them up."""
        self._new_defaults: Mapping[str, Any] | None = None
        """The settings of groups without their own settings, after the broker's settings have changed."""

    def partition_for(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` of a group. Raises ApiError COORDINATOR_NOT_AVAILABLE as `service` does."""
        if not self.is_active:
            raise ApiError("COORDINATOR_NOT_AVAILABLE")
        return partition_of(group_id, self._partition_count)

    # settings of groups -----------------------------------------------------------------------------------------------------------

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply changed settings of the broker. Only the assignment intervals of groups may change."""
        from kops.config.groups import effective_group_config

        self._config = config
        self._settings.clear()
        self._new_defaults = effective_group_config({}, config.values)

    def group_settings(self, group_id: str) -> Mapping[str, Any] | None:
        """Return the settings of a group, or the broker's changed settings if the group has none, or None."""
        configs = self._cache.image.configs
        if configs is self._seen_configs and group_id in self._without_settings:
            return self._new_defaults
        if configs is not self._seen_configs or len(self._without_settings) >= _KEPT_GROUPS:
            self._seen_configs = configs
            self._without_settings.clear()
        from kops.metadata.image.parts.configs import ResourceType

        set_for_it = configs.of(ResourceType.GROUP, group_id)
        if not set_for_it:
            self._settings.pop(group_id, None)
            self._without_settings.add(group_id)
            return self._new_defaults
        known = self._settings.get(group_id)
        if known is None or known[0] != set_for_it:
            from kops.config.groups import effective_group_config

            known = self._settings[group_id] = (dict(set_for_it), effective_group_config(set_for_it, self._config.values))
        return known[1]

    # the parts --------------------------------------------------------------------------------------------------------------------

    def _make_service(self) -> GroupCoordinatorService:
        from kops.broker.coordinators.group_service import GroupCoordinatorService
        from kops.broker.coordinators.loader import LogLoader
        from kops.broker.coordinators.share_groups import ShareSurroundings
        from kops.broker.coordinators.writer import LogWriter
        from kops.coordinators.groups.config import GroupCoordinatorConfig
        from kops.coordinators.groups.shard.shard import GroupCoordinatorShard
        from kops.coordinators.runtime.runtime import CoordinatorRuntime
        from kops.protocol.registry import GROUP_RECORDS

        config, loop = self._config, self._loop
        self._view = ImageView(self._cache.image)
        settings = GroupCoordinatorConfig.from_values(config.values)

        def make_shard(
            key: TopicPartition, timeline: Timeline, timer: CoordinatorTimer, executor: CoordinatorExecutor
        ) -> GroupCoordinatorShard:
            return GroupCoordinatorShard(timeline, timer, executor, loop.now_ms, self._new_id, settings, self.group_settings)

        runtime: CoordinatorRuntime[GroupCoordinatorShard] = CoordinatorRuntime(
            make_shard,
            LogWriter(self._replicas, self._start_verification),
            LogLoader(loop, self._replicas.hosted, GROUP_RECORDS, config["offsets.load.buffer.size"]),
            loop,
            self._in_background,
            now_ms=loop.now_ms,
            image=self._view,
            log=log,
            write_timeout_ms=settings.offsets_commit_timeout_ms,
            append_linger_ms=own_linger_ms(settings.group_coordinator_append_linger_ms),
            codec=CODECS[config["offsets.topic.compression.codec"]],
        )
        share = ShareSurroundings(self._persister, self._end_offsets, lambda: ImageView(self._cache.image), loop.call_soon)
        return GroupCoordinatorService(runtime, settings, self.partition_for, share)

    def _topics_deleted(self, service: GroupCoordinatorService, topics: TopicsDelta) -> None:
        from kops.coordinators.groups.shard.shard import DeletedTopic

        service.on_topics_deleted([DeletedTopic(topic.id, topic.name) for topic in topics.deleted_topics()])

    def _in_background(self, task: Callable[[], R], done: Callable[[R | None, KopsError | None], object]) -> None:
        def ended(future: Future[R]) -> None:
            error = future.exception()
            if error is None:
                done(future.result(), None)
            else:
                done(None, error if isinstance(error, KopsError) else ApiError("UNKNOWN_SERVER_ERROR", str(error)))

        self._loop.in_thread(task, ended)
