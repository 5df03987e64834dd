"""The interface of a shard, the part of a coordinator for one partition of its topic (Kafka's CoordinatorShard)."""

from __future__ import annotations

from typing import Protocol

from kops.coordinators.runtime.image import CoordinatorDelta, CoordinatorImage
from kops.coordinators.runtime.records import CoordinatorRecord


class CoordinatorShard(Protocol):
    """One shard. Only the two `replay` methods change its persistent state; a shard may also keep state in memory only."""

    def on_loaded(self, image: CoordinatorImage) -> None:
        """Called when all records have been replayed. Requests follow."""

    def on_metadata_update(self, delta: CoordinatorDelta, image: CoordinatorImage) -> None:
        """Called when the metadata has changed."""

    def on_unloaded(self) -> None:
        """Called when the broker no longer leads the partition. No request or timer follows."""

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Apply a record to the state. `producer_id` is -1 unless the record belongs to a transaction."""

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Apply the end of a transaction that wrote into the partition."""
