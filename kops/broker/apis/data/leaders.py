"""The leader of a partition, for clients that asked the wrong broker (KIP-951; Kafka's KafkaApis.getCurrentLeader)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kops.errors import ApiError

if TYPE_CHECKING:
    from kops.broker.parts.parts import BrokerParts
    from kops.metadata.image.metadata_cache import BrokerNode
    from kops.records.log_offsets import TopicPartition


class Leader(NamedTuple):
    """A leader. Unknown numbers are -1. `node` is None if clients cannot reach it."""

    id: int
    epoch: int
    node: BrokerNode | None


def current_leader(parts: BrokerParts, key: TopicPartition, listener: str) -> Leader:
    """Return the leader known to this broker's replica, or, without a replica, the one in the metadata, with its address on this
    listener."""
    try:
        replica = parts.replica_manager.get_partition_or_raise(key)
    except ApiError:
        registered = parts.cache.partition(key.topic, key.partition)
        leader_id, epoch = (-1, -1) if registered is None else (registered.leader, registered.leader_epoch)
    else:
        leader_id, epoch = -1 if replica.leader_id is None else replica.leader_id, replica.leader_epoch
    return Leader(leader_id, epoch, parts.cache.alive_broker(leader_id, listener))
