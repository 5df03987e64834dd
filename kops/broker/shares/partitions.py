"""The share partitions in memory, and their removal. Source: SharePartitionCache, SharePartitionListener."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.partition.share_partition import SharePartition

if TYPE_CHECKING:
    from kops.broker.replicas.manager import ReplicaManager
    from kops.records.log_offsets import TopicPartition
    from kops.replication.leading.partition import Partition

Listener = Callable[["TopicPartition"], None]


class _Cached(NamedTuple):
    share_partition: SharePartition
    partition: Partition
    listener: Listener


class SharePartitions:
    """Share partitions by key. One is removed when its partition is deleted, fails or gets another leader; `on_removed` is then called."""

    def __init__(self, replicas: ReplicaManager, on_removed: Callable[[SharePartitionKey], object]) -> None:
        self._replicas = replicas
        self._on_removed = on_removed
        self._groups: dict[str, dict[SharePartitionKey, _Cached]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def __iter__(self) -> Iterator[SharePartition]:
        return (cached.share_partition for group in self._groups.values() for cached in group.values())

    def get(self, key: SharePartitionKey) -> SharePartition | None:
        """Return the share partition, or None if it is not in memory."""
        cached = self._groups.get(key.group_id, {}).get(key)
        return None if cached is None else cached.share_partition

    def add(self, key: SharePartitionKey, share_partition: SharePartition, partition: Partition) -> None:
        """Add a share partition. It stays as long as this broker leads its partition."""

        def listener(_: TopicPartition) -> None:
            self.remove(key)

        for listeners in (partition.on_deleted, partition.on_failed, partition.on_following):
            listeners.append(listener)
        self._groups.setdefault(key.group_id, {})[key] = _Cached(share_partition, partition, listener)

    def remove(self, key: SharePartitionKey) -> None:
        """Fence and remove a share partition, if it is in memory."""
        group = self._groups.get(key.group_id, {})
        cached = group.pop(key, None)
        if cached is None:
            return
        if not group:
            del self._groups[key.group_id]
        cached.share_partition.fence()
        partition = cached.partition
        for listeners in (partition.on_deleted, partition.on_failed, partition.on_following):
            listeners.remove(cached.listener)
        self._on_removed(key)

    def remove_group(self, group_id: str) -> None:
        """Remove the share partitions of a group."""
        for key in list(self._groups.get(group_id, ())):
            self.remove(key)

    def remove_all(self) -> None:
        """Remove all share partitions."""
        for group_id in list(self._groups):
            self.remove_group(group_id)
