"""A shard with its written and committed offsets, which can revert to an earlier offset (Kafka's SnapshottableCoordinator)."""

from __future__ import annotations

from typing import Generic, TypeVar

from kops.coordinators.runtime.image import CoordinatorDelta, CoordinatorImage
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.shard import CoordinatorShard
from kops.timeline import Timeline

S = TypeVar("S", bound=CoordinatorShard)


class ReplayedShard(Generic[S]):
    """One shard and its offsets. They are exclusive: everything below `last_written_offset` has been replayed."""

    def __init__(self, shard: S, timeline: Timeline) -> None:
        self.shard = shard
        self.timeline = timeline
        self.last_written_offset = self.last_committed_offset = timeline.offset = 0

    def prepare(self, offset: int) -> None:
        """Assign all following changes to the record at `offset`."""
        self.timeline.offset = offset

    def settle(self, is_settled: bool) -> None:
        """Set whether the following records were committed before the load began. Such records are never undone."""
        self.timeline.is_settled = is_settled

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Replay one record."""
        self.timeline.offset = offset
        self.shard.replay(offset, producer_id, producer_epoch, record)

    def replay_end_transaction_marker(self, offset: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Replay the marker that ends a transaction."""
        self.timeline.offset = offset
        self.shard.replay_end_transaction_marker(producer_id, producer_epoch, is_commit)

    def revert_last_written_offset(self, offset: int) -> None:
        """Undo the records at and above `offset`."""
        assert offset <= self.last_written_offset, f"{offset} is above the last written offset {self.last_written_offset}"
        self.last_written_offset = offset
        self.timeline.revert_to(offset - 1)
        self.timeline.offset = offset

    def update_last_written_offset(self, offset: int) -> None:
        """Record that everything below `offset` has been replayed."""
        assert offset > self.last_written_offset, f"{offset} is not above the last written offset {self.last_written_offset}"
        self.last_written_offset = offset
        self.timeline.offset = offset

    def update_last_committed_offset(self, offset: int) -> None:
        """Record that everything below `offset` is committed."""
        assert self.last_committed_offset <= offset <= self.last_written_offset, (
            f"committed {offset}, but {self.last_committed_offset} was already committed and {self.last_written_offset} is the last written"
        )
        self.last_committed_offset = offset
        self.timeline.forget_up_to(offset - 1)

    def on_loaded(self, image: CoordinatorImage) -> None:
        """Tell the shard that all records have been replayed."""
        self.timeline.is_settled = False
        self.shard.on_loaded(image)

    def on_metadata_update(self, delta: CoordinatorDelta, image: CoordinatorImage) -> None:
        """Pass new metadata to the shard."""
        self.shard.on_metadata_update(delta, image)
