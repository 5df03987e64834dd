"""What the runtime asks of a shard, the part of a coordinator that one partition of its topic holds (Kafka's CoordinatorShard)."""

from __future__ import annotations

from typing import Protocol

from kops.coordinators.runtime.image import CoordinatorDelta, CoordinatorImage
from kops.coordinators.runtime.records import CoordinatorRecord


class CoordinatorShard(Protocol):
    """One shard. Only the two `replay` methods change its state, apart from what a shard may keep in memory only."""

    def on_loaded(self, image: CoordinatorImage) -> None:
        """All records were replayed; requests come from now on."""

    def on_metadata_update(self, delta: CoordinatorDelta, image: CoordinatorImage) -> None:
        """The metadata has changed."""

    def on_unloaded(self) -> None:
        """The partition has another leader. No request and no timer comes any more."""

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Change the state as the record says. `producer_id` is -1 but for records of a transaction."""

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """A transaction that wrote into the partition has ended."""
