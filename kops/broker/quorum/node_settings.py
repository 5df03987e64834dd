"""Derives the settings of the quorum, the metadata log, the controller and the listeners from the settings of a node.

Source: the constructors of Kafka's KafkaRaftManager, QuorumConfig, MetadataLogConfig, ControllerServer and SocketServer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.broker.network.settings import ListenerSettings, NetworkSettings
from kops.broker.quorum.raft_log import METADATA_TOPIC_ID, MetadataLogSettings
from kops.config.broker_keys.table import KAFKA_CONFIG_DEF
from kops.metadata.controller.cluster.settings import ControllerSettings
from kops.metadata.raft.node.actions import Identity
from kops.metadata.raft.voters.replica import Address, Endpoints, Node
from kops.metadata.raft.voters.settings import QuorumSettings
from kops.metadata.raft.voters.voter_set import VoterSet
from kops.protocol.api_keys import Listener
from kops.storage.formats.kafka_uuid import uuid_bytes
from kops.storage.formats.names import METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.config import BrokerConfig
    from kops.config.broker.listeners import Endpoint
    from kops.metadata.controller.base.result import Record

_FIRST_BOOTSTRAP_ID: Final = -2
_LISTENER_LIMITS: Final = {"max_connections": "max.connections", "max_connection_creation_rate": "max.connection.creation.rate"}


def quorum_settings(config: BrokerConfig) -> QuorumSettings:
    """`controller.quorum.*`."""
    return QuorumSettings(
        election_timeout_ms=config["controller.quorum.election.timeout.ms"],
        fetch_timeout_ms=config["controller.quorum.fetch.timeout.ms"],
        election_backoff_max_ms=config["controller.quorum.election.backoff.max.ms"],
        append_linger_ms=config["controller.quorum.append.linger.ms"],
        request_timeout_ms=config["controller.quorum.request.timeout.ms"],
        retry_backoff_ms=config["controller.quorum.retry.backoff.ms"],
        auto_join=config["controller.quorum.auto.join.enable"],
        fetch_max_size=config["controller.quorum.fetch.max.bytes"],
        fetch_snapshot_max_size=config["controller.quorum.fetch.snapshot.max.bytes"],
    )


def raft_identity(config: BrokerConfig, cluster_id: str, directory_id: str, endpoints: Endpoints, draw: Callable[[int], int]) -> Identity:
    """The node's identity in the quorum. `endpoints` are those of its controller; none if the node is only a broker."""
    listener = config.controller_listener_names[0].upper()
    voters = {voter_id: Address(*address) for voter_id, address in config.quorum_voters.items()}
    # The ids of bootstrap servers are not known yet: negative ids tell them apart.
    servers = [Node(_FIRST_BOOTSTRAP_ID - index, *address) for index, address in enumerate(config.quorum_bootstrap_servers)]
    return Identity(
        node_id=config.node_id,
        directory_id=uuid_bytes(directory_id),
        cluster_id=cluster_id,
        topic=METADATA_TOPIC,
        topic_id=uuid_bytes(METADATA_TOPIC_ID),
        listener=listener,
        listeners=endpoints,
        static_voters=VoterSet.static(listener, voters),
        bootstrap=servers or [Node(voter_id, *address) for voter_id, address in voters.items()],
        can_become_voter=config.is_controller,
        settings=quorum_settings(config),
        draw=draw,
    )


def metadata_log_settings(config: BrokerConfig) -> MetadataLogSettings:
    """`metadata.log.*`, `metadata.max.retention.*`, `internal.metadata.*`."""
    return MetadataLogSettings(
        segment_bytes=config["metadata.log.segment.bytes"],
        internal_segment_bytes=config["internal.metadata.log.segment.bytes"],
        segment_ms=config["metadata.log.segment.ms"],
        max_retention_bytes=config["metadata.max.retention.bytes"],
        max_retention_ms=config["metadata.max.retention.ms"],
        max_batch_size=config["internal.metadata.max.batch.size.in.bytes"],
        delete_delay_ms=config["internal.metadata.delete.delay.millis"],
    )


def controller_settings(config: BrokerConfig, cluster_id: str, bootstrap: tuple[Record, ...]) -> ControllerSettings:
    """The settings of the controller. `bootstrap` holds the records of bootstrap.checkpoint."""
    imbalance_ms = config["leader.imbalance.check.interval.seconds"] * 1000
    return ControllerSettings(
        cluster_id,
        bootstrap,
        quorum_node_ids=tuple(config.quorum_voters),
        static_config=config.originals,
        broker_config_def=KAFKA_CONFIG_DEF,
        remote_storage_enabled=config["remote.log.storage.system.enable"],
        default_replication_factor=config["default.replication.factor"],
        default_num_partitions=config["num.partitions"],
        delete_topic_enable=config["delete.topic.enable"],
        session_timeout_ms=config["broker.session.timeout.ms"],
        leader_imbalance_check_interval_ms=imbalance_ms if config["auto.leader.rebalance.enable"] else None,
        unclean_leader_election_check_interval_ms=config["unclean.leader.election.interval.ms"],
        max_idle_interval_ms=config["metadata.max.idle.interval.ms"] or None,
    )


def network_settings(config: BrokerConfig, kind: Listener) -> NetworkSettings:
    """The listeners of one kind, and the limits that all of them share."""
    is_controller = kind is Listener.CONTROLLER
    own = config.controller_listeners if is_controller else config.broker_listeners
    advertised = config.advertised_controller_listeners if is_controller else config.advertised_listeners
    by_name = {endpoint.name: endpoint for endpoint in advertised}
    return NetworkSettings(
        listeners=tuple(_listener(config, endpoint, by_name.get(endpoint.name), kind) for endpoint in own),
        inter_broker_listener_name=None if is_controller else config.inter_broker_listener_name,
        socket_send_buffer_bytes=config["socket.send.buffer.bytes"],
        socket_receive_buffer_bytes=config["socket.receive.buffer.bytes"],
        socket_request_max_bytes=config["socket.request.max.bytes"],
        socket_listen_backlog_size=config["socket.listen.backlog.size"],
        max_connections_per_ip=config["max.connections.per.ip"],
        max_connections_per_ip_overrides=config.max_connections_per_ip_overrides,
        max_connections=config["max.connections"],
        max_connection_creation_rate=config["max.connection.creation.rate"],
        connections_max_idle_ms=config["connections.max.idle.ms"],
        queued_max_requests=config["queued.max.requests"],
        queued_max_request_bytes=config["queued.max.request.bytes"],
        quota_window_num=config["quota.window.num"],
        quota_window_size_seconds=config["quota.window.size.seconds"],
        unstable_api_versions_enable=config["unstable.api.versions.enable"],
    )


def _listener(config: BrokerConfig, endpoint: Endpoint, advertised: Endpoint | None, kind: Listener) -> ListenerSettings:
    return ListenerSettings(
        endpoint.name,
        endpoint.host,
        endpoint.port,
        kind,
        endpoint.security_protocol,
        advertised_host=advertised.host or None if advertised is not None else None,
        advertised_port=advertised.port or None if advertised is not None else None,
        **{field: config.listener_value(endpoint.name, key) for field, key in _LISTENER_LIMITS.items()},
    )
