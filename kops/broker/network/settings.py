"""The settings of a node's network: Kafka's keys in snake_case, with Kafka's defaults.

Source: Kafka's SocketServerConfigs, and the few keys of ServerConfigs and QuotaConfig that its SocketServer reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kops.config.values.java import INT_MAX
from kops.protocol.api_keys import Listener

USE_OS_DEFAULT = -1  # As the size of a socket buffer.
DEFAULT_SEND_BUFFER = 100 * 1024
"""Kafka's default. Here it leaves the size to the system as well (see docs/design/latency.md)."""


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """One listener. `host` "" is every interface, `port` 0 any free port. Without an advertised address, the bound one is advertised.

    The two limits are those of `listener.name.<name>.max.connections` and `.max.connection.creation.rate`.
    """

    name: str = "PLAINTEXT"
    host: str = ""
    port: int = 9092
    kind: Listener = Listener.BROKER
    security_protocol: str = "PLAINTEXT"
    advertised_host: str | None = None
    advertised_port: int | None = None
    max_connections: int = INT_MAX
    max_connection_creation_rate: int = INT_MAX


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """All of a SocketServer's settings. Sizes in bytes, -1 for what the system chooses (buffers) or no limit (`queued_max_request_bytes`,
    `connections_max_idle_ms`); the creation rate in connections a second, over windows of `quota_window_size_seconds`."""

    listeners: tuple[ListenerSettings, ...] = ()
    inter_broker_listener_name: str | None = None
    socket_send_buffer_bytes: int = DEFAULT_SEND_BUFFER
    socket_receive_buffer_bytes: int = 100 * 1024
    socket_request_max_bytes: int = 100 * 1024 * 1024
    socket_listen_backlog_size: int = 50
    max_connections_per_ip: int = INT_MAX
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)  # From host name or address to count.
    max_connections: int = INT_MAX
    max_connection_creation_rate: int = INT_MAX
    connections_max_idle_ms: int = 10 * 60 * 1000
    queued_max_requests: int = 500
    queued_max_request_bytes: int = -1
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    unstable_api_versions_enable: bool = False
