"""The common part of all changes of partitions in the current state of the cluster.

Source: Kafka's ReplicationControlManager (generateLeaderAndIsrUpdates, LeaderAcceptor, getTopicEffectiveMinIsr).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.metadata.controller.partitions.partition_change import ChangeRules, Election, PartitionTarget, change_partition
from kops.metadata.partition_registration import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kops.metadata.controller.base.result import Record
    from kops.metadata.controller.cluster.cluster_control import ClusterControl
    from kops.metadata.controller.cluster.configuration_control import ConfigurationControl
    from kops.metadata.controller.cluster.feature_control import FeatureControl
    from kops.metadata.controller.partitions.partition_index import TopicIdPartition
    from kops.metadata.controller.partitions.replication_state import ReplicationState, Topic
    from kops.protocol.messages import PartitionChangeRecord


class PartitionChanges:
    """The state of the cluster that decides how partitions may change."""

    def __init__(self, state: ReplicationState, cluster: ClusterControl, configs: ConfigurationControl, features: FeatureControl) -> None:
        self.state = state
        self.cluster = cluster
        self.configs = configs
        self.features = features

    def change(
        self, topic: Topic, number: int, target: PartitionTarget, is_acceptable: Callable[[int], bool] | None = None
    ) -> tuple[PartitionChangeRecord, int] | None:
        """Return the record for a partition, or None if nothing changes. Leaders must be active unless `is_acceptable` says otherwise."""
        partition = topic.partitions[number]
        accepts = self.cluster.is_active if is_acceptable is None else is_acceptable

        def may_lead(replica: int) -> bool:
            placed = accepts(replica) and replica in partition.replicas
            return placed and self.cluster.has_online_dir(replica, partition.directory(replica))

        return change_partition(partition, topic.id, number, target, self._rules(topic), may_lead)

    def election(self, topic: Topic) -> Election:
        """Return the risk that an election may take in this topic."""
        return Election.UNCLEAN if self.configs.is_unclean_election_enabled(topic.name) else Election.ONLINE

    def update_leaders(
        self,
        partitions: Iterable[TopicIdPartition],
        *,
        removed: int = NO_LEADER,
        added: int = NO_LEADER,
        uncleanly_shut_down: int = NO_LEADER,
    ) -> list[Record]:
        """Return the records that remove brokers from ISRs and leaderships, or let them lead again. `added` already counts as active."""

        def is_acceptable(replica: int) -> bool:
            return replica not in (removed, uncleanly_shut_down) and (replica == added or self.cluster.is_active(replica))

        records: list[Record] = []
        for topic_id, number in partitions:
            topic = self.state.topics[topic_id]
            isr = [replica for replica in topic.partitions[number].isr if replica not in (removed, uncleanly_shut_down)]
            unclean = () if uncleanly_shut_down == NO_LEADER else (uncleanly_shut_down,)
            target = PartitionTarget(isr=isr, unclean_shutdown_replicas=unclean, election=self.election(topic))
            record = self.change(topic, number, target, is_acceptable)
            if record is not None:
                records.append(record)
        return records

    def _rules(self, topic: Topic) -> ChangeRules:
        min_isr = min(self.configs.min_insync_replicas(topic.name), len(topic.partitions[0].replicas))
        return ChangeRules(self.features.metadata_version, min_isr, self.features.is_elr_enabled, self.cluster.default_dir)
