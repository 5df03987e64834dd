"""The settings of a controller: its place in the cluster, defaults, periods, and the source of random numbers.

Sources: Kafka's QuorumController.Builder, and ControllerServer, which fills it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kops.metadata.controller.cluster.feature_versions import production_features

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.config.values.definition import ConfigDef
    from kops.metadata.broker_registration import VersionRange
    from kops.metadata.controller.base.result import Record


class Draws(Protocol):
    """Random numbers and ids."""

    def next_int(self, bound: int) -> int:
        """Return a number from 0 to below `bound` (java.util.Random.nextInt)."""

    def uuid(self) -> bytes:
        """Return 16 random bytes that are not a reserved Uuid and whose text does not begin with a dash (Uuid.randomUuid)."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The settings. Times are in ms; a period of None means never.

    `static_config` is server.properties, `broker_config_def` the definition of all broker settings, `bootstrap` the records of
    bootstrap.checkpoint. `quorum_node_ids` are the voters that are known at startup.
    """

    cluster_id: str
    bootstrap: tuple[Record, ...]
    quorum_node_ids: tuple[int, ...] = ()
    supported_features: Mapping[str, VersionRange] = field(default_factory=production_features)
    static_config: Mapping[str, str] = field(default_factory=dict)
    broker_config_def: ConfigDef | None = None
    remote_storage_enabled: bool = False
    default_replication_factor: int = 1
    default_num_partitions: int = 1
    delete_topic_enable: bool = True
    session_timeout_ms: int = 9_000
    leader_imbalance_check_interval_ms: int | None = 300_000
    unclean_leader_election_check_interval_ms: int = 300_000
    max_idle_interval_ms: int | None = 500
    max_elections_per_imbalance: int = 1_000
