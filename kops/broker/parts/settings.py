"""Derives the settings of a broker's parts from those of its node (`node_settings` has what broker and controller share).

Source: where Kafka's BrokerServer, ReplicaManager, NodeToControllerChannelManagerImpl and BrokerBlockingSender read their KafkaConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.broker.controller_link.lifecycle import LifecycleSettings
from kops.broker.network.peer import PeerSettings
from kops.broker.replicas.settings import ReplicaSettings

if TYPE_CHECKING:
    from kops.config import BrokerConfig

CHANNEL_BACKOFF_MS: Final = 50
_SECOND_MS: Final = 1000


def lifecycle_settings(config: BrokerConfig) -> LifecycleSettings:
    """Intervals and time-outs of the broker's heartbeats."""
    return LifecycleSettings(
        config["broker.heartbeat.interval.ms"], config["initial.broker.registration.timeout.ms"], config["broker.session.timeout.ms"]
    )


def channel_settings(config: BrokerConfig) -> PeerSettings:
    """Settings of the connection to the controller."""
    return PeerSettings(
        client_id=str(config.node_id),
        request_timeout_ms=config["controller.socket.timeout.ms"],
        reconnect_backoff_ms=CHANNEL_BACKOFF_MS,
        reconnect_backoff_max_ms=CHANNEL_BACKOFF_MS,
        socket_connection_setup_timeout_ms=config["socket.connection.setup.timeout.ms"],
        socket_connection_setup_timeout_max_ms=config["socket.connection.setup.timeout.max.ms"],
    )


def replica_settings(config: BrokerConfig) -> ReplicaSettings:
    """Settings of leading, following and moving replicas."""
    return ReplicaSettings(
        node_id=config.node_id,
        inter_broker_listener_name=config.inter_broker_listener_name,
        replica_lag_time_max_ms=config["replica.lag.time.max.ms"],
        replica_fetch_wait_max_ms=config["replica.fetch.wait.max.ms"],
        replica_fetch_min_bytes=config["replica.fetch.min.bytes"],
        replica_fetch_max_bytes=config["replica.fetch.max.bytes"],
        replica_fetch_response_max_bytes=config["replica.fetch.response.max.bytes"],
        replica_fetch_backoff_ms=config["replica.fetch.backoff.ms"],
        replica_socket_timeout_ms=config["replica.socket.timeout.ms"],
        replica_socket_receive_buffer_bytes=config["replica.socket.receive.buffer.bytes"],
        num_replica_fetchers=config["num.replica.fetchers"],
        num_replica_alter_log_dirs_threads=config["num.replica.alter.log.dirs.threads"] or len(config.log_dirs),
        replica_selector_class=config["replica.selector.class"],
        replication_quota_window_num=config["replication.quota.window.num"],
        replication_quota_window_ms=config["replication.quota.window.size.seconds"] * _SECOND_MS,
        alter_log_dirs_replication_quota_window_num=config["alter.log.dirs.replication.quota.window.num"],
        alter_log_dirs_replication_quota_window_ms=config["alter.log.dirs.replication.quota.window.size.seconds"] * _SECOND_MS,
        socket_connection_setup_timeout_ms=config["socket.connection.setup.timeout.ms"],
        socket_connection_setup_timeout_max_ms=config["socket.connection.setup.timeout.max.ms"],
        metadata_log_dir=config.metadata_log_dir,
    )
