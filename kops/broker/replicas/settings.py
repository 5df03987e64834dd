"""The settings for a broker's replicas (Kafka KafkaConfig, ReplicationConfigs, ServerConfigs, QuotaConfig)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Kafka's settings by their names, `_` for `.`; times in ms, sizes in bytes.

    `replica_selector_class` is None if consumers read only from the leader. `metadata_log_dir` is None if this node has none.
    """

    node_id: int
    inter_broker_listener_name: str = "PLAINTEXT"
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_backoff_ms: int = 1_000
    replica_socket_timeout_ms: int = 30_000
    replica_socket_receive_buffer_bytes: int = 65_536
    num_replica_fetchers: int = 1
    num_replica_alter_log_dirs_threads: int = 1
    replica_selector_class: str | None = None
    replication_quota_window_num: int = 11
    replication_quota_window_ms: int = 1_000
    alter_log_dirs_replication_quota_window_num: int = 11
    alter_log_dirs_replication_quota_window_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    socket_connection_setup_timeout_max_ms: int = 30_000
    metadata_log_dir: str | None = None
