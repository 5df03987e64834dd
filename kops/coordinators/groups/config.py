"""The settings of the group coordinator (Kafka's GroupCoordinatorConfig), from a node's settings with Kafka's names.

`GroupSettings` provides the settings of single groups by group id (Kafka's GroupConfigManager).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

GroupSettings = Callable[[str], Mapping[str, Any] | None]
"""Returns all settings of a group, as typed values by Kafka's names (`consumer.session.timeout.ms`), or None if it has none."""

CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000


@dataclass(frozen=True, slots=True)
class GroupCoordinatorConfig:
    """The coordinator's settings. The defaults are Kafka's. What limits settings of groups is in `kops.config.groups`."""

    offset_metadata_max_bytes: int = 4096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5000
    group_min_session_timeout_ms: int = 6000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3000
    group_max_size: int = 2**31 - 1
    group_coordinator_append_linger_ms: int = -1
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5000
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_assignment_interval_ms: int = 1000
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_share_session_timeout_ms: int = 45_000
    group_share_heartbeat_interval_ms: int = 5000
    group_share_max_size: int = 200
    group_share_assignment_interval_ms: int = 1000
    group_share_initialize_retry_interval_ms: int = 30_000
    group_streams_session_timeout_ms: int = 45_000
    group_streams_heartbeat_interval_ms: int = 5000
    group_streams_max_size: int = 2**31 - 1
    group_streams_num_standby_replicas: int = 0
    group_streams_initial_rebalance_delay_ms: int = 3000
    group_streams_assignment_interval_ms: int = 1000

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> GroupCoordinatorConfig:
        """Read the settings from a BrokerConfig (`config.values`), or any mapping with Kafka's names. Missing settings have their
        defaults."""
        found: dict[str, Any] = {}
        for field in fields(cls):
            value = values.get(field.name.replace("_", "."))
            if value is not None:
                found[field.name] = tuple(value) if isinstance(value, list) else value
        return cls(**found)

    @property
    def offsets_retention_ms(self) -> int:
        """The retention time of offsets."""
        return self.offsets_retention_minutes * 60 * 1000

    @property
    def allows_upgrade(self) -> bool:
        """Whether classic groups may become consumer groups (Kafka's ConsumerGroupMigrationPolicy)."""
        return self.group_consumer_migration_policy.lower() in ("bidirectional", "upgrade")

    @property
    def allows_downgrade(self) -> bool:
        """Whether consumer groups may become classic groups."""
        return self.group_consumer_migration_policy.lower() in ("bidirectional", "downgrade")
