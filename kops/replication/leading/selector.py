"""The choice of a replica for a consumer (KIP-392; Kafka RackAwareReplicaSelector, ReplicaManager.findPreferredReadReplica)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kops.records.log_offsets import TopicPartition
    from kops.replication.leading.fetch import ClientMetadata
    from kops.replication.leading.partition import Partition


class ReplicaView(NamedTuple):
    """A replica from which the consumer could read. `time_since_caught_up_ms` is 0 for the leader."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    time_since_caught_up_ms: int


class ReplicaSelector(Protocol):
    """`replica.selector.class`: chooses among the leader and the in-sync replicas that have the requested offset."""

    def select(self, key: TopicPartition, client: ClientMetadata, replicas: Sequence[ReplicaView], leader: ReplicaView) -> ReplicaView: ...


class RackAwareReplicaSelector:
    """Chooses a replica in the client's rack: the leader if it is there, else the one with the largest end offset, else the leader."""

    def select(self, key: TopicPartition, client: ClientMetadata, replicas: Sequence[ReplicaView], leader: ReplicaView) -> ReplicaView:
        """Return the replica from which to read."""
        near = [replica for replica in replicas if client.rack_id and replica.rack == client.rack_id]
        if not near or leader in near:
            return leader
        return max(near, key=lambda replica: (replica.log_end_offset, -replica.time_since_caught_up_ms, replica.broker_id))


def find_preferred_read_replica(
    partition: Partition,
    selector: ReplicaSelector,
    client: ClientMetadata,
    racks: Mapping[int, str | None],
    fetch_offset: int,
    now_ms: int,
) -> int | None:
    """Return the broker to which a consumer of this leader is referred, or None if it stays with the leader. `racks` has the brokers that
    the client can reach.

    Only members of the ISR that have the offset are considered. Any other replica could lag forever while its consumers wait.
    """
    if not partition.is_leader:
        return None
    leader = ReplicaView(partition.around.broker_id, racks.get(partition.around.broker_id), partition.local_log.log_end_offset, 0)
    replicas = [leader]
    for replica in partition.remote_replicas.values():
        state = replica.state
        if replica.broker_id in partition.in_sync_replica_ids and state.log_start_offset <= fetch_offset <= state.log_end_offset:
            since_ms = now_ms - state.last_caught_up_time_ms
            replicas.append(ReplicaView(replica.broker_id, racks.get(replica.broker_id), state.log_end_offset, since_ms))
    selected = selector.select(partition.topic_partition, client, replicas, leader)
    return selected.broker_id if selected != leader and selected.broker_id in racks else None
