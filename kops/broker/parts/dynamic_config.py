"""Applies settings that change while a broker runs: passes the settings in the metadata, of this broker and of all brokers, to its parts.

Source: Kafka's DynamicBrokerConfig (`addReconfigurables`), DynamicLogConfig, BrokerDynamicThreadPool, DynamicListenerConfig,
DynamicProducerStateManagerConfig, LogCleaner.reconfigure, SocketServer.reconfigure, BrokerConfigHandler. Kafka's thread pools for requests
and for its scheduler have no counterpart here; their sizes are checked and kept.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kops.broker.network.acceptor import BindError
from kops.broker.quorum.node_settings import network_settings
from kops.config.broker.dynamic import DynamicConfig, usable
from kops.config.broker.dynamic_keys import LISTENER_LIMITS, LOG_DEFAULTS
from kops.errors import ApiError, UsageError
from kops.metadata.image.parts.configs import ResourceType
from kops.protocol.api_keys import Listener
from kops.replication.quota import UNLIMITED
from kops.storage.cleaning.log_cleaner import cleaner_config
from kops.storage.formats.kafka_uuid import uuid_bytes
from kops.storage.manager.settings import log_manager_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.broker.parts.parts import BrokerParts
    from kops.config import BrokerConfig
    from kops.config.broker.dynamic import Change
    from kops.metadata.image.metadata_image import MetadataImage
    from kops.storage.cleaning.log_cleaner import LogCleaner

log = logging.getLogger(__name__)

_PRODUCERS: Final = frozenset({"producer.id.expiration.ms", "transaction.partition.verification.enable"})
_GROUPS: Final = frozenset(f"group.{kind}.assignment.interval.ms" for kind in ("consumer", "share", "streams"))
_CLEANER: Final = "log.cleaner."
_CONNECTIONS: Final = frozenset({"listeners", "max.connections.per.ip", "max.connections.per.ip.overrides", *LISTENER_LIMITS})


class DynamicBrokerConfig:
    """One broker's settings over time. `parts.config` always holds the present ones. `parts` need their logs before the first `update`.

    As in Kafka, a setting that a part rejects is logged and leaves that part as it was: the metadata is committed already.
    """

    def __init__(self, parts: BrokerParts) -> None:
        self.settings = DynamicConfig(parts.config)
        self.cleaner: LogCleaner | None = None
        """Set if the broker has one."""
        self._parts = parts
        self._applied: tuple[dict[str, str], dict[str, str]] = ({}, {})

    def validate(self, settings: Mapping[str, str], *, per_broker: bool) -> None:
        """Check that these may be all the settings in the metadata for this broker, or for all brokers. Raises ApiError INVALID_REQUEST."""
        self.settings.validate(settings, per_broker=per_broker)

    def from_persistent(self, settings: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
        """The stored settings that take effect."""
        return usable(settings, per_broker=per_broker)[0]

    def update(self, image: MetadataImage) -> None:
        """Apply the settings in the metadata."""
        cluster, broker = (dict(image.configs.of(ResourceType.BROKER, name)) for name in ("", str(self._parts.node_id)))
        if (cluster, broker) == self._applied:
            return
        was_cluster, was_broker = self._applied
        self._applied = (cluster, broker)
        if cluster != was_cluster:
            log.info("Updating cluster configuration : %s", sorted(cluster))
            self._apply(cluster, per_broker=False)
        if broker != was_broker:
            log.info("Updating node %d with new configuration : %s", self._parts.node_id, sorted(broker))
            self._apply(broker, per_broker=True)
        self._update_quotas()

    def update_topic(self, topic: str) -> None:
        """A topic's settings have changed: update which of its replicas are throttled. Raises UsageError for an invalid value."""
        manager, config = self._parts.replica_manager, self._parts.logs.topics.of(topic)
        for quota, replicas in (
            (manager.leader_quota, config.leader_replication_throttled_replicas),
            (manager.follower_quota, config.follower_replication_throttled_replicas),
        ):
            quota.throttle_as_set(topic, replicas, self._parts.node_id)

    def _apply(self, settings: Mapping[str, str], *, per_broker: bool) -> None:
        try:
            change = self.settings.update_broker(settings) if per_broker else self.settings.update_cluster(settings)
        except ApiError as error:
            what = f"Per-broker configs of {self._parts.node_id}" if per_broker else "Cluster default configs"
            log.error("%s could not be applied: %s: %s", what, sorted(settings), error.__cause__ or error)
            return
        for note in change.notes:
            log.error("%s", note)
        if change.changed:
            self._parts.config = change.new
            self._reconfigure(change)

    def _reconfigure(self, change: Change) -> None:
        """Reconfigure the parts, in Kafka's order."""
        changed = change.changed
        for part, is_concerned in (
            (self._update_threads, "num.replica.fetchers" in changed),
            (self._update_log_defaults, bool(changed & LOG_DEFAULTS)),
            (self._update_cordoned_dirs, "cordoned.log.dirs" in changed),
            (self._update_listeners, any(name in _CONNECTIONS or name.startswith("listener.name.") for name in changed)),
            (self._update_producers, bool(changed & _PRODUCERS)),
            (self._update_groups, bool(changed & _GROUPS)),
            (self._update_cleaner, any(name.startswith(_CLEANER) for name in changed)),
        ):
            if is_concerned:
                try:
                    part(change.old, change.new)
                except (ApiError, UsageError, BindError) as error:
                    log.error("Failed to update broker configuration: %s", error)

    def _update_threads(self, old: BrokerConfig, new: BrokerConfig) -> None:
        self._parts.replica_manager.fetchers.resize(new["num.replica.fetchers"])

    def _update_log_defaults(self, old: BrokerConfig, new: BrokerConfig) -> None:
        _ = new.default_topic_config  # This rejects settings that are invalid for topics.
        self._parts.logs.update_broker_config(new.topic_defaults())

    def _update_cordoned_dirs(self, old: BrokerConfig, new: BrokerConfig) -> None:
        directories = self._parts.logs.dirs
        directories.cordoned = frozenset(map(self._parts.logs.files.absolute, new.cordoned_log_dirs))
        self._parts.lifecycle.directories_cordoned(
            uuid_bytes(directories.ids[path]) for path in directories.cordoned if path in directories.ids
        )

    def _update_listeners(self, old: BrokerConfig, new: BrokerConfig) -> None:
        server = self._parts.socket_server
        settings = network_settings(new, Listener.BROKER)
        present = {endpoint.name for endpoint in old.broker_listeners}
        wanted = {listener.name: listener for listener in settings.listeners}
        for name in present - wanted.keys():
            server.remove_listener(name)
        server.update_limits(settings)
        for name, listener in wanted.items():
            if name not in present:
                server.add_listener(listener)

    def _update_producers(self, old: BrokerConfig, new: BrokerConfig) -> None:
        logs = self._parts.logs
        logs.config = log_manager_config(new.properties)
        for each in logs.all_logs:
            each.producers.expiration_ms = new["producer.id.expiration.ms"]
            each.producers.verification_enabled = new["transaction.partition.verification.enable"]

    def _update_groups(self, old: BrokerConfig, new: BrokerConfig) -> None:
        self._parts.groups.reconfigure(new)

    def _update_cleaner(self, old: BrokerConfig, new: BrokerConfig) -> None:
        if self.cleaner is not None:
            self.cleaner.reconfigure(cleaner_config(new.properties))

    def _update_quotas(self) -> None:
        """Limits of replication are never in a file. This broker's setting has precedence over that of all brokers."""
        manager = self._parts.replica_manager
        for name, quota in (
            ("leader.replication.throttled.rate", manager.leader_quota),
            ("follower.replication.throttled.rate", manager.follower_quota),
            ("replica.alter.log.dirs.io.max.bytes.per.second", manager.alter_log_dirs_quota),
        ):
            found = self.settings.broker.get(name, self.settings.cluster.get(name))
            quota.update_quota(UNLIMITED if found is None else int(found))
