"""The share coordinator of a broker. It is created when it is first needed, and follows elections and new metadata.

Source: Kafka's ShareCoordinatorService (startup, shutdown, onElection, onResignation, onMetadataUpdate, partitionFor, periodic jobs) and
BrokerServer.createShareCoordinator. Its modules are imported with the first request or the first partition of `__share_group_state`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kops.broker.coordinators.image_views import DeltaView, ImageView
from kops.errors import ApiError, KopsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kops.broker.network.loop import Loop
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
_NO_LINGER_OF_ITS_OWN: Final = -1
_CODECS: Final = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_DELETE_TIMEOUT_MS: Final = 30_000


class ShareCoordinator:
    """The share coordinator."""

    def __init__(self, loop: Loop, config: BrokerConfig, replicas: ReplicaManager, cache: MetadataCache) -> None:
        self._loop = loop
        self._config = config
        self._replicas = replicas
        self._cache = cache
        self._partition_count = 0
        self._service: ShareCoordinatorService | None = None
        self._view: ImageView | None = None
        """What the shards see of the metadata."""
        self._has_jobs = False
        self.is_active = False

    def startup(self) -> None:
        """Start. The number of partitions is that of the topic or, before it exists, that of the settings."""
        count = self._cache.partition_count(SHARE_TOPIC)
        self._partition_count = self._config["share.coordinator.state.topic.num.partitions"] if count is None else count
        self.is_active = True

    def shutdown(self) -> None:
        """Stop. Waiting requests get NOT_COORDINATOR."""
        self.is_active = False
        if self._service is not None:
            self._service.runtime.close()

    def partition_for(self, key: SharePartitionKey) -> int:
        """Return the partition of `__share_group_state` for a share partition. Raises ApiError COORDINATOR_NOT_AVAILABLE like `service`."""
        if not self.is_active:
            raise ApiError("COORDINATOR_NOT_AVAILABLE")
        return key.state_partition(self._partition_count)

    @property
    def service(self) -> ShareCoordinatorService:
        """Return the service. Raises ApiError COORDINATOR_NOT_AVAILABLE before the start and after the stop."""
        if not self.is_active:
            raise ApiError("COORDINATOR_NOT_AVAILABLE")
        if self._service is None:
            self._service = self._make_service()
            self._check_jobs(self._cache.image)
        return self._service

    def answer(self, request: Message) -> Promise[Any]:
        """Handle one of the five requests of share state."""
        from kops.broker.share_state.service import answer_state_request

        return answer_state_request(self.service if self.is_active else None, request)

    # from the metadata ------------------------------------------------------------------------------------------------------------

    def apply(self, delta: TopicsDelta) -> None:
        """Load the partitions that this broker leads after a change of topics, and unload those that it no longer leads."""
        changed = any(topic.image.name == SHARE_TOPIC for topic in delta.changed_topics.values())
        if not changed and not delta.topic_was_deleted(SHARE_TOPIC):
            return
        from kops.metadata.image.coordinator_changes import coordinator_changes
        from kops.records.log_offsets import TopicPartition

        changes = coordinator_changes(delta, SHARE_TOPIC, self._config.node_id)
        for partition, epoch in changes.resigned:
            if self._service is not None:
                self._service.resigned(TopicPartition(SHARE_TOPIC, partition), epoch)
        for partition, leader_epoch in changes.elected:
            self.service.runtime.schedule_load_operation(TopicPartition(SHARE_TOPIC, partition), leader_epoch)

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Pass new metadata to the shards."""
        service = self._service
        if service is None or not self.is_active:
            return
        if self._view is not None and not delta.has("topics"):
            self._view.advance(image)
        else:
            self._view = ImageView(image)
            service.runtime.on_metadata_update(DeltaView(delta), self._view)
        if delta.has("topics") and delta.topics.deleted_topic_ids:
            service.on_topics_deleted(delta.topics.deleted_topic_ids)
        self._check_jobs(image)

    # periodic jobs ----------------------------------------------------------------------------------------------------------------

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

        linger_ms = config["share.coordinator.append.linger.ms"]
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
            append_linger_ms=None if linger_ms == _NO_LINGER_OF_ITS_OWN else linger_ms,
            codec=_CODECS[config["share.coordinator.state.topic.compression.codec"]],
        )
        return ShareCoordinatorService(runtime, self.partition_for, self._delete_records)

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
