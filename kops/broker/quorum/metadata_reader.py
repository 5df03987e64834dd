"""The metadata loader in its place above the Raft node: committed records become images, and publishers are told of them.

Source: Kafka's MetadataLoader as a RaftClient.Listener (handleCommit, handleLoadSnapshot, scheduleInitializeNewPublishers). Kafka looks
every 100 ms whether a new publisher can be told what there is; here that is looked at whenever something was committed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kops.broker.quorum.committed_records import snapshot_provenance, snapshot_records
from kops.metadata.raft.log.log import BOOTSTRAP_SNAPSHOT_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kops.broker.quorum.committed_records import CommittedRecords
    from kops.metadata.image.loader import MetadataLoader
    from kops.metadata.raft.log.log import SnapshotSource
    from kops.metadata.raft.voters.replica import LeaderAndEpoch
    from kops.records import Batch

log = logging.getLogger(__name__)


class MetadataReader:
    """A RaftListener that feeds a loader."""

    def __init__(self, loader: MetadataLoader, records: CommittedRecords) -> None:
        self._loader = loader
        self._records = records

    def on_snapshot(self, snapshot: SnapshotSource) -> None:
        """The state of a snapshot in the place of what was known."""
        if snapshot.snapshot_id != BOOTSTRAP_SNAPSHOT_ID:
            self._loader.load_snapshot(snapshot_records(snapshot), snapshot_provenance(snapshot))
            self._loader.initialize_publishers()

    def on_committed(self, batches: Sequence[Batch]) -> None:
        """Batches that are committed now."""
        self._loader.load_batches(self._records.of(batches))
        self._loader.initialize_publishers()

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Images do not depend on who leads."""

    def on_shut_down(self) -> None:
        """Nothing is left open."""
