"""The share coordinator of a broker, and its periodic jobs.

Source: Kafka's ShareCoordinatorService (partitionFor, periodic jobs) and BrokerServer.createShareCoordinator. Its modules
are imported with the first request or the first partition of `__share_group_state`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kops.broker.coordinators.image_views import ImageView
from kops.broker.coordinators.on_demand import CODECS, CoordinatorOnDemand, own_linger_ms
from kops.errors import ApiError, KopsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kops.broker.network.events.loop import Loop
    from kops.broker.replicas.manager import ReplicaManager
    from kops.broker.share_state.service import ShareCoordinatorService
    from kops.config import BrokerConfig
    from kops.coordinators.runtime.promise import Promise
    from kops.coordinators.runtime.timers import CoordinatorExecutor, CoordinatorTimer
    from kops.coordinators.share.key import SharePartitionKey
    from kops.coordinators.share.shard import ShareCoordinatorShard
    from kops.metadata.image.metadata_cache import MetadataCache
    from kops.metadata.image.metadata_delta import MetadataDelta
    from kops.metadata.image.metadata_image import MetadataImage
    from kops.metadata.image.parts.topics import TopicsDelta
    from kops.protocol.declaration import Message
    from kops.records.log_offsets import TopicPartition
    from kops.replication.waiting.delayed import AwaitedDeletion
    from kops.timeline import Timeline

log = logging.getLogger(__name__)
T = TypeVar("T")
SHARE_TOPIC: Final = "__share_group_state"
_FEATURE: Final = "share.version"
_DELETE_TIMEOUT_MS: Final = 30_000


class ShareCoordinator(CoordinatorOnDemand["ShareCoordinatorService"]):
    """The share coordinator."""

    topic = SHARE_TOPIC
    partitions_key = "share.coordinator.state.topic.num.partitions"

    def __init__(self, loop: Loop, config: BrokerConfig, replicas: ReplicaManager, cache: MetadataCache) -> None:
        super().__init__(loop, config, replicas, cache)
        self._has_jobs = False

    def partition_for(self, key: SharePartitionKey) -> int:
        """Return the partition of `__share_group_state` for a share partition. Raises ApiError COORDINATOR_NOT_AVAILABLE like `service`."""
        if not self.is_active:
            raise ApiError("COORDINATOR_NOT_AVAILABLE")
        return key.state_partition(self._partition_count)

    def answer(self, request: Message) -> Promise[Any]:
        """Handle one of the five requests of share state."""
        from kops.broker.share_state.service import answer_state_request

        return answer_state_request(self.service if self.is_active else None, request)

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Pass new metadata to the shards, and start the periodic jobs if they are now supported."""
        super().on_metadata_update(delta, image)
        if self._service is not None and self.is_active:
            self._check_jobs(image)

    # periodic jobs ----------------------------------------------------------------------------------------------------------------

    def _service_made(self) -> None:
        self._check_jobs(self._cache.image)

    def _check_jobs(self, image: MetadataImage) -> None:
        """Start the periodic jobs when the cluster supports share groups. If it no longer does, each job ends at its next run."""
        is_enabled = image.features.levels.get(_FEATURE, 0) >= 1
        was_enabled, self._has_jobs = self._has_jobs, is_enabled
        if is_enabled and not was_enabled:
            self._schedule("share.coordinator.state.topic.prune.interval.ms", lambda service: service.prune())
            self._schedule("share.coordinator.cold.partition.snapshot.interval.ms", lambda service: service.snapshot_cold_partitions())

    def _schedule(self, interval_key: str, job: Callable[[ShareCoordinatorService], Promise[None]]) -> None:
        def run() -> None:
            if self._has_jobs and self.is_active:
                job(self.service).when_done(ended)

        def ended(_: None, error: KopsError | None) -> None:
            if error is not None:
                log.error("A job of %s failed: %s", interval_key, error)
            self._schedule(interval_key, job)

        self._loop.call_later(self._config[interval_key], run)

    # the parts --------------------------------------------------------------------------------------------------------------------

    def _make_service(self) -> ShareCoordinatorService:
        from kops.broker.coordinators.loader import LogLoader
        from kops.broker.coordinators.writer import LogWriter
        from kops.broker.share_state.service import ShareCoordinatorService
        from kops.coordinators.runtime.runtime import CoordinatorRuntime
        from kops.coordinators.share.shard import ShareCoordinatorConfig, ShareCoordinatorShard
        from kops.protocol.registry import SHARE_RECORDS

        config, loop = self._config, self._loop
        self._view = ImageView(self._cache.image)
        settings = ShareCoordinatorConfig(
            config["share.coordinator.snapshot.update.records.per.snapshot"],
            config["share.coordinator.cold.partition.snapshot.interval.ms"],
        )

        def make_shard(
            key: TopicPartition, timeline: Timeline, timer: CoordinatorTimer, executor: CoordinatorExecutor
        ) -> ShareCoordinatorShard:
            return ShareCoordinatorShard(timeline, settings, loop.now_ms)

        runtime: CoordinatorRuntime[ShareCoordinatorShard] = CoordinatorRuntime(
            make_shard,
            LogWriter(self._replicas, _no_transactions),
            LogLoader(loop, self._replicas.hosted, SHARE_RECORDS, config["share.coordinator.load.buffer.size"]),
            loop,
            _no_background,
            now_ms=loop.now_ms,
            image=self._view,
            log=log,
            write_timeout_ms=config["share.coordinator.write.timeout.ms"],
            append_linger_ms=own_linger_ms(config["share.coordinator.append.linger.ms"]),
            codec=CODECS[config["share.coordinator.state.topic.compression.codec"]],
        )
        return ShareCoordinatorService(runtime, self.partition_for, self._delete_records)

    def _resigned(self, service: ShareCoordinatorService, key: TopicPartition, epoch: int | None) -> None:
        service.resigned(key, epoch)

    def _topics_deleted(self, service: ShareCoordinatorService, topics: TopicsDelta) -> None:
        service.on_topics_deleted(topics.deleted_topic_ids)

    def _delete_records(self, key: TopicPartition, offset: int) -> Promise[None]:
        from kops.coordinators.runtime.promise import Promise

        promise: Promise[None] = Promise()

        def answered(answers: Mapping[TopicPartition, AwaitedDeletion]) -> None:
            error = answers[key].error
            if error == "NONE":
                promise.complete(None)
            else:
                promise.fail(ApiError(error))

        self._replicas.delete_records({key: offset}, _DELETE_TIMEOUT_MS, answered, internal_topics_allowed=True)
        return promise


def _no_transactions(*arguments: object) -> Promise[Any]:
    raise AssertionError("nobody writes share state in transactions")


def _no_background(task: Callable[[], T], done: Callable[[T | None, KopsError | None], object]) -> None:
    raise AssertionError("share state needs no work outside of the loop")
