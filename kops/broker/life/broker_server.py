"""Runs a broker: makes, starts and stops its parts in Kafka's order.

Source: Kafka's BrokerServer. The constructor locks the log directories and binds the ports. Requests are read once the controller has
unfenced the broker. Where Kafka waits in between (caught up, first metadata published, unfenced), kops handles events.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kops.broker.apis.dispatch import dispatcher
from kops.broker.controller_link.alter_partition_manager import AlterPartitionSender
from kops.broker.controller_link.assignments import AssignmentsManager
from kops.broker.controller_link.auto_topics import AutoTopics
from kops.broker.controller_link.channel import ControllerChannel, raft_controller
from kops.broker.controller_link.forwarding import Forwarding
from kops.broker.controller_link.lifecycle import BrokerLifecycle, Registration
from kops.broker.controller_link.producer_ids import ProducerIds
from kops.broker.controller_link.status import BrokerState, recovery_of
from kops.broker.life.coordinators import complete_in_groups, make_groups
from kops.broker.life.log_start import LogStart, stray_rule, threads_runner
from kops.broker.life.periodic import PeriodicTasks
from kops.broker.life.publishers import BrokerPublisher, BrokerRegistrationTracker
from kops.broker.life.shares import make_shares
from kops.broker.network.acceptor import BindError
from kops.broker.network.socket_server import SocketServer
from kops.broker.parts.dynamic_config import DynamicBrokerConfig
from kops.broker.parts.parts import BrokerParts
from kops.broker.parts.settings import channel_settings, lifecycle_settings, replica_settings
from kops.broker.quorum.node_settings import network_settings
from kops.broker.quorum.raft_manager import PATIENCE_WITH_THREADS_S
from kops.broker.replicas.fetcher import connect_by
from kops.broker.replicas.manager import ReplicaManager
from kops.broker.share_state.lazy import ShareState
from kops.broker.transactions.lazy import Transactions
from kops.broker.transactions.surroundings import Surroundings
from kops.config.values.java import LONG_MAX
from kops.metadata.controller.cluster.feature_versions import production_features
from kops.metadata.image.parts.configs import ResourceType
from kops.protocol.api_keys import Listener
from kops.protocol.messages.broker_registration_request import Feature
from kops.protocol.messages.broker_registration_request import Listener as RegisteredListener
from kops.replication.leading.fetch_context import FetchManager
from kops.replication.leading.fetch_session import FetchSessionCache
from kops.storage.formats.kafka_uuid import uuid_bytes
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.manager.log_manager import LogManager
from kops.storage.manager.settings import TopicConfigs, log_manager_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from kops.broker.controller_link.lifecycle import Cancellable
    from kops.broker.controller_link.status import DirRecovery
    from kops.broker.quorum.shared_server import SharedServer
    from kops.errors import KopsError
    from kops.metadata.image.metadata_delta import MetadataDelta
    from kops.metadata.image.metadata_image import MetadataImage
    from kops.metadata.image.parts.topics import TopicsDelta
    from kops.storage.start.log_dirs import BrokerStart

log = logging.getLogger(__name__)

CONTROLLED_SHUTDOWN_TIMEOUT_MS: Final = 300_000
FETCH_SESSION_EVICTION_MS: Final = 120_000
_FORWARDING_TIMEOUT_MS: Final = 60_000
_PLAINTEXT: Final = 0
_MAX_SESSION_ID: Final = 2**31 - 1


class BrokerOwner(Protocol):
    """The owner of a broker."""

    def status_changed(self) -> None:
        """The state of the broker, or the progress of its recovery, has changed."""

    def broker_ready(self) -> None:
        """The broker serves: from now on requests are read."""

    def broker_failed(self, reason: str, *, is_at_once: bool) -> None:
        """The broker can't continue; its parts are still open. `is_at_once`: its disks can't be trusted, so nothing more may be written."""


class BrokerServer:
    """One broker. The constructor locks its log directories and binds its ports.

    The constructor raises StartRefusedError, LockHeldError, BindError, UsageError or OSError; nothing stays open then. All methods are for
    the loop's thread.
    """

    def __init__(self, shared: SharedServer, owner: BrokerOwner) -> None:
        self.shared = shared
        self.config = config = shared.config
        self.loop = loop = shared.loop
        self._owner = owner
        self._draws = shared.draws
        self.tasks = PeriodicTasks(loop)
        self.parts = parts = BrokerParts(loop, config, config.node_id, shared.cluster_id, self._draw, self._kraft_version)
        self._registered_dirs: dict[str, bytes] = {}
        self._channels: list[ControllerChannel] = []
        self._alter_partition: AlterPartitionSender | None = None
        self._assignments: AssignmentsManager | None = None
        self._publishers: list[BrokerPublisher | BrokerRegistrationTracker] = []
        self._is_loading = self._are_logs_loaded = self._has_replicas = self._is_ready = self._is_closed = False
        self._is_caught_up = self._is_published = False
        self._when_loaded: list[Callable[[], object]] = []
        self._startup_limit: Cancellable | None = None
        self._when_told_to_go: Callable[[], None] | None = None
        parts.lifecycle = BrokerLifecycle(loop, self, lifecycle_settings(config), supports_cordoned_dirs=self._supports_cordoned_dirs)
        parts.logs = self._make_logs()
        parts.dynamic_config = DynamicBrokerConfig(parts)
        try:
            parts.socket_server = SocketServer(loop, network_settings(config, Listener.BROKER), dispatcher(parts))
        except BaseException:
            parts.logs.dirs.release_locks()
            raise

    # facts ------------------------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> BrokerState:
        """Kafka's state of the broker."""
        return self.parts.lifecycle.state

    @property
    def recovery(self) -> tuple[DirRecovery, ...]:
        """The progress of loading the logs; empty when they are loaded."""
        return recovery_of(self.parts.logs.log_dirs) if self._is_loading else ()

    @property
    def is_started(self) -> bool:
        """Whether all its parts exist."""
        return self._has_replicas

    @property
    def is_closed(self) -> bool:
        """Whether it has ended and no thread is loading logs any more."""
        return self._is_closed and not self._is_loading

    @property
    def assignments(self) -> AssignmentsManager:
        """Reports directories to the controller; exists from `start` on."""
        assert self._assignments is not None, "the broker is not started"
        return self._assignments

    def listeners(self) -> dict[str, tuple[str, int]]:
        """The addresses for clients: host and port by listener."""
        server = self.parts.socket_server
        return {listener.name: server.advertised_address(listener.name) for listener in self.config.advertised_listeners}

    # the start --------------------------------------------------------------------------------------------------------------------

    def _make_logs(self) -> LogManager:
        config, loop = self.config, self.loop
        paths = frozenset(config.log_dirs)
        cache = self.parts.cache
        topics = TopicConfigs(lambda topic: cache.config(ResourceType.TOPIC, topic), config.topic_defaults())
        logs = LogManager(
            self.shared.files,
            [start for start in self.shared.directories.starts if start.path in paths],
            now_ms=loop.now_ms,
            scheduler=self.tasks.scheduler,
            new_id=lambda: self._draws.uuid().hex(),
            failures=LogDirFailureChannel(lambda path: loop.call_from_thread(self._handle_failures)),
            topics=topics,
            config=log_manager_config(config.properties),
            draw_int=lambda: self._draws.next_int(_MAX_SESSION_ID),
            warn=log.warning,
        )
        logs.dirs.cordoned = frozenset(map(self.shared.files.absolute, config.cordoned_log_dirs))
        return logs

    def start(self) -> None:
        """Start the broker. `BrokerOwner.broker_ready` is called when it serves. Raises what `SharedServer.start` does."""
        log.info("[BrokerServer id=%d] Starting broker", self.config.node_id)
        self.shared.start()
        parts, config = self.parts, self.config
        parts.to_controller = self._channel(_FORWARDING_TIMEOUT_MS)
        forwarding = Forwarding(self._channel(_FORWARDING_TIMEOUT_MS))
        parts.forwarding = forwarding
        parts.auto_topics = AutoTopics(forwarding, lambda: parts.config, parts.now_ms)
        parts.producer_ids = ProducerIds(
            config.node_id, parts.to_controller, broker_epoch=parts.broker_epoch, now_ms=lambda: int(self.loop.monotonic_ms())
        )
        parts.fetch_sessions = FetchManager(
            FetchSessionCache(config["max.incremental.fetch.session.cache.slots"], FETCH_SESSION_EVICTION_MS, self._draw_session_id),
            lambda: int(self.loop.monotonic_ms()),
        )
        self._alter_partition = AlterPartitionSender(self.loop, self._channel(None), config.node_id, parts.broker_epoch)
        self._assignments = AssignmentsManager(
            self.loop, self._channel(_FORWARDING_TIMEOUT_MS), config.node_id, lambda: parts.cache.image, draw=self._draw
        )
        parts.replica_manager = ReplicaManager(
            self.loop,
            replica_settings(config),
            parts.logs,
            parts.cache,
            connect=connect_by(self.loop, self._draw),
            alter_partition=self._alter_partition,
            broker_epoch=parts.broker_epoch,
            assignments=self._assignments,
            on_directory_failed=self._directory_failed,
            halt=self._halt,
        )
        parts.transactions = self._make_transactions()
        parts.share_state = ShareState(self.loop, config, parts.replica_manager, parts.cache, self._draw)
        parts.groups = make_groups(parts, self._draws.uuid)
        parts.shares = make_shares(parts, self._draws.next_int)
        parts.socket_server.on_disconnect = parts.shares.on_disconnect
        self._has_replicas = True
        self._register()
        self._install_publishers()
        limit_ms = config["server.max.startup.time.ms"]
        if limit_ms != LONG_MAX:
            self._startup_limit = self.loop.call_later(limit_ms, self._startup_timed_out)

    def _make_transactions(self) -> Transactions:
        config, parts = self.config, self.parts
        return Transactions(
            Surroundings(
                self.loop,
                config.node_id,
                config.inter_broker_listener_name,
                parts.cache,
                parts.replica_manager,
                self.tasks.scheduler,
                lambda: parts.config,
                self._draw,
                parts.producer_ids.generate,
                partial(complete_in_groups, parts),
            )
        )

    def _startup_timed_out(self) -> None:
        if not self._is_ready:
            waits_for = "the logs to be loaded" if self._is_loading else "the controller" if not self._is_caught_up else "being unfenced"
            self.must_shut_down(f"Received a timeout exception after server.max.startup.time.ms while waiting for {waits_for}")

    def _channel(self, retry_timeout_ms: int | None) -> ControllerChannel:
        settings = channel_settings(self.config)
        controller = raft_controller(self.shared.raft, self.config.controller_listener_names[0])
        channel = ControllerChannel(self.loop, controller, draw=self._draw, settings=settings, retry_timeout_ms=retry_timeout_ms)
        self._channels.append(channel)
        return channel

    def _register(self) -> None:
        config, parts = self.config, self.parts
        self._registered_dirs = {path: uuid_bytes(found) for path, found in parts.logs.dirs.ids.items()}
        epoch = parts.logs.broker_epoch_of_clean_shutdown()
        registration = Registration(
            config.node_id,
            self.shared.cluster_id,
            self._draws.uuid(),
            [RegisteredListener(name, host, port, _PLAINTEXT) for name, (host, port) in self.listeners().items()],
            [Feature(name, levels.min, levels.max) for name, levels in production_features().items()],
            config.rack,
            list(self._registered_dirs.values()),
            -1 if epoch is None else epoch,
        )
        cordoned = [self._registered_dirs[path] for path in parts.logs.dirs.cordoned if path in self._registered_dirs]
        channel = self._channel(config["broker.heartbeat.interval.ms"])
        parts.lifecycle.start(channel, registration, lambda: self.shared.image.offset, cordoned)

    def _install_publishers(self) -> None:
        publisher = BrokerPublisher(
            self.parts.cache,
            self.parts.replica_manager,
            start_logs=self._start_logs,
            on_topics=self._topics_changed,
            on_broker_configs=self._broker_configs_changed,
            on_topic_configs=self.parts.dynamic_config.update_topic,
            on_metadata=self._metadata_changed,
            on_first_publish=self._first_published,
        )
        tracker = BrokerRegistrationTracker(self.config.node_id, self.parts.lifecycle.resend_registration)
        self._publishers = [publisher, tracker]
        for each in self._publishers:
            self.shared.install(each)

    def _topics_changed(self, delta: TopicsDelta, image: MetadataImage) -> None:
        """Topics in the metadata have changed."""
        self.parts.groups.apply(delta)
        self.parts.transactions.apply(delta)
        self.parts.share_state.coordinator.apply(delta)

    def _metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """There is new metadata."""
        self.parts.groups.on_metadata_update(delta, image)
        self.parts.share_state.coordinator.on_metadata_update(delta, image)
        self.parts.shares.on_metadata_update()

    def _broker_configs_changed(self, image: MetadataImage) -> None:
        """The settings of brokers in the metadata have changed."""
        self.parts.dynamic_config.update(image)

    # the logs ---------------------------------------------------------------------------------------------------------------------

    def _start_logs(self, image: MetadataImage, loaded: Callable[[], None]) -> None:
        self._is_loading = True
        self._owner.status_changed()
        start = LogStart(self.loop, self.parts.logs, self._owner.status_changed)
        threads = self.parts.config["num.recovery.threads.per.data.dir"]

        def done(future: Future[BrokerStart]) -> None:
            self._is_loading = False
            if self._is_closed:
                pass
            elif future.exception() is not None:
                self._halt(f"Error starting LogManager: {future.exception()}")
            else:
                self._are_logs_loaded = True
                self._logs_loaded(image)
                self.parts.groups.startup()
                self.parts.transactions.startup()
                self.parts.share_state.coordinator.startup()
                loaded()
            waiting, self._when_loaded = self._when_loaded, []
            for run in waiting:
                run()

        start.run(stray_rule(image.topics, self.config.node_id), threads, done)

    def _logs_loaded(self, image: MetadataImage) -> None:
        logs = self.parts.logs

        def assigned_directory(topic_id: str, partition: int) -> str | None:
            from kops.storage.formats.kafka_uuid import uuid_text

            found = image.topics.partition(uuid_bytes(topic_id), partition)
            if found is None or self.config.node_id not in found.replicas:
                return None
            return uuid_text(found.directories[found.replicas.index(self.config.node_id)])

        logs.recover_abandoned_future_logs(assigned_directory)
        for path, directory_id in self._registered_dirs.items():
            if path not in logs.dirs.ids:
                self._directory_failed(directory_id)
        self._start_cleaner()
        logs.schedule_tasks()
        self.tasks.start_isr_expiration(self.config["replica.lag.time.max.ms"], self.parts.replica_manager.maybe_shrink_isrs)
        self._handle_failures()

    def _start_cleaner(self) -> None:
        from kops.storage.cleaning.log_cleaner import LogCleaner, cleaner_config

        config = cleaner_config(self.parts.config.properties)
        if not config.enable:
            return
        logs = self.parts.logs
        cleaner = LogCleaner(
            logs.files,
            logs.dirs.live,
            logs.current_logs,
            logs.failures,
            config,
            now_ms=self.loop.now_ms,
            now_ns=time.monotonic_ns,
            scheduler=self.tasks.scheduler,
            warn=log.warning,
        )
        logs.cleaner = self.parts.dynamic_config.cleaner = cleaner
        self.tasks.start_cleaner(cleaner)

    def _handle_failures(self) -> None:
        # While logs are being loaded, their manager handles failures and reports them at the end.
        if self._has_replicas and not self._is_loading and not self._is_closed:
            self.parts.replica_manager.handle_log_dir_failures()

    def _directory_failed(self, directory_id: bytes) -> None:
        self.parts.lifecycle.directory_failed(directory_id, self.config["log.dir.failure.timeout.ms"])

    # LifecycleOwner ---------------------------------------------------------------------------------------------------------------

    def state_changed(self, state: BrokerState) -> None:
        """See `LifecycleOwner`."""
        self._owner.status_changed()

    def caught_up(self) -> None:
        """See `LifecycleOwner`."""
        self._is_caught_up = True
        self._maybe_ask_to_unfence()

    def _first_published(self) -> None:
        self._is_published = True
        self._maybe_ask_to_unfence()

    def _maybe_ask_to_unfence(self) -> None:
        if self._is_caught_up and self._is_published:
            self.parts.lifecycle.set_ready_to_unfence()

    def unfenced(self) -> None:
        """See `LifecycleOwner`."""
        try:
            self.parts.socket_server.start()
        except BindError as error:
            self.must_shut_down(str(error))
            return
        self._is_ready = True
        log.info("[BrokerServer id=%d] started", self.config.node_id)
        self._owner.broker_ready()

    def controlled_shutdown_over(self) -> None:
        """See `LifecycleOwner`."""
        if self._when_told_to_go is not None:
            go, self._when_told_to_go = self._when_told_to_go, None
            self.loop.call_soon(go)

    def must_shut_down(self, reason: str) -> None:
        """See `LifecycleOwner`."""
        if not self._is_closed:
            self._owner.broker_failed(reason, is_at_once=False)

    def _halt(self, reason: str) -> None:
        if not self._is_closed:
            self._owner.broker_failed(reason, is_at_once=True)

    def _kraft_version(self) -> int:
        return self.shared.raft.node.kraft_version

    def _supports_cordoned_dirs(self) -> bool:
        version = self.parts.cache.image.features.metadata_version
        return version is not None and version.has_cordoned_log_dirs

    # the end ----------------------------------------------------------------------------------------------------------------------

    def shut_down(self, done: Callable[[], object]) -> None:
        """Hand over leaderships, then stop and close everything that is not shared. Calls `done` once."""
        log.info("[BrokerServer id=%d] shutting down", self.config.node_id)
        timer: Cancellable | None = None

        def go() -> None:
            if timer is not None:
                timer.cancel()
            self._stop(done)

        def timed_out() -> None:
            log.error("Timed out waiting for the controller to approve controlled shutdown")
            self.parts.lifecycle.begin_shutdown()

        if self.state is BrokerState.SHUTTING_DOWN:
            go()
            return
        self._when_told_to_go = go
        if not self.config["controlled.shutdown.enable"]:
            self.parts.lifecycle.begin_shutdown()
            return
        if self._has_replicas:
            self.parts.replica_manager.begin_controlled_shutdown()
        timer = self.loop.call_later(CONTROLLED_SHUTDOWN_TIMEOUT_MS, timed_out)
        self.parts.lifecycle.begin_controlled_shutdown()

    def hurry(self) -> None:
        """End a shutdown's wait for the controller."""
        if self._when_told_to_go is not None:
            self.parts.lifecycle.begin_shutdown()

    def _stop(self, done: Callable[[], object]) -> None:
        if self._are_logs_loaded:
            # While logs are being loaded their list is incomplete: a checkpoint would omit the others.
            self.parts.replica_manager.shut_down()
        self._close_parts()
        if self._is_loading:
            # The loading threads can't be stopped; what they have opened is closed when they end.
            self._when_loaded.append(lambda: self._close_logs(done))
        else:
            self._close_logs(done)

    def _close_parts(self) -> None:
        """Close everything except the logs. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._startup_limit is not None:
            self._startup_limit.cancel()
        parts = self.parts
        parts.lifecycle.begin_shutdown()
        # Nothing is written for members whose connections are closed now.
        parts.socket_server.on_disconnect = None
        parts.socket_server.stop()
        for publisher in self._publishers:
            self.shared.remove(publisher)
            if isinstance(publisher, BrokerPublisher):
                publisher.close()
        self._publishers.clear()
        # Storage's tasks must not meet logs that are being closed.
        self.tasks.shut_down()
        if self._assignments is not None:
            self._assignments.close()
        if self._has_replicas:
            parts.shares.close()
            parts.groups.shutdown()
            parts.transactions.close()
            parts.share_state.close()
            parts.replica_manager.close()
        if self._alter_partition is not None:
            self._alter_partition.close()
        for channel in self._channels:
            channel.close()

    def _close_logs(self, done: Callable[[], object]) -> None:
        logs, epoch = self.parts.logs, self.parts.lifecycle.broker_epoch
        if not self._are_logs_loaded:
            # Checkpoints would list no logs. Kafka writes them all the same; kops does not.
            self._abandon_logs()
            done()
            return
        runner = threads_runner(self.parts.config["num.recovery.threads.per.data.dir"])

        def closed(future: Future[list[KopsError]]) -> None:
            for problem in future.result():
                log.error("Error while closing a log: %s", problem)
            log.info("[BrokerServer id=%d] shut down completed", self.config.node_id)
            done()

        def close() -> list[KopsError]:
            self.tasks.side_work.join()
            self.tasks.side_work.tell_failures()
            return logs.shutdown(epoch, run=runner)

        self.loop.in_thread(close, closed)

    def kill(self) -> None:
        """Close everything at once, as the end of a process does. Files are left as after a kill.

        Threads that load logs can't be stopped: the log directories stay locked until they end.
        """
        self._close_parts()
        if self._is_loading:
            self._when_loaded.append(self._abandon_logs)
        else:
            self._abandon_logs()

    def _abandon_logs(self) -> None:
        logs = self.parts.logs
        deadline_s = time.monotonic() + PATIENCE_WITH_THREADS_S
        is_quiet = self.tasks.side_work.join(PATIENCE_WITH_THREADS_S)
        # The metadata log may lie in one of these directories.
        is_quiet = self.shared.join_side_work(max(0.0, deadline_s - time.monotonic())) and is_quiet
        for found in (*logs.all_logs, *logs.stray_logs.values()):
            found.close_handlers()
        logs.to_be_deleted.close()
        # The next owner of the directories must not find a thread that still writes there.
        if is_quiet:
            logs.dirs.release_locks()
            return

        def release() -> None:
            self.tasks.side_work.join()
            self.shared.join_side_work()
            logs.dirs.release_locks()

        log.warning("A side thread still waits for the disk; the log directories stay locked until it ends")
        self.loop.in_thread(release, lambda future: future.result())

    # chance -----------------------------------------------------------------------------------------------------------------------

    def _draw(self) -> float:
        return self._draws.next_int(1 << 30) / (1 << 30)

    def _draw_session_id(self) -> int:
        return 1 + self._draws.next_int(_MAX_SESSION_ID)
