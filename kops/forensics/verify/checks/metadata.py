"""The files beside the metadata log `__cluster_metadata-0`: the quorum's state and the snapshots.

Sources: Kafka's FileQuorumStateStore (quorum-state), Snapshots and RecordsSnapshotReader (`offset-epoch.checkpoint`: batches, the first
with the snapshot's header, the last with its footer; the offset in the name is the first one that the snapshot does not cover).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kops.errors import DecodeError
from kops.forensics.findings.finding import Finding, finding

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.inventory.tree import FileEntry, PartitionDir
    from kops.records import Batch
    from kops.storage.formats.quorum_state import QuorumState


def check_metadata(partition: PartitionDir, start: int, last_epoch: int, files: Files) -> Iterator[Finding]:
    """Findings about quorum-state and the snapshots; `start` is the metadata log's first offset, `last_epoch` the highest leader
    epoch of its batches (level full)."""
    from kops.storage.formats.quorum_state import read_quorum_state

    entry = partition.file("quorum-state")
    if entry is None:
        yield finding("quorum-state-missing", f"{partition.path}/quorum-state")
    else:
        try:
            yield from _quorum(entry, read_quorum_state(files.read_all(entry.path), file=entry.path), last_epoch)
        except DecodeError as error:
            yield finding("quorum-state-malformed", entry.path, error.reason)
    snapshots = [entry for entry in partition.files if entry.kind == "checkpoint" and entry.suffix == ""]
    for entry in snapshots:
        yield from check_snapshot(entry, files)
    if start > 0 and not any(entry.offset is not None and entry.offset >= start for entry in snapshots):
        yield finding(
            "metadata-start-missing",
            partition.path,
            f"the log begins with offset {start}, and no snapshot covers the offsets below",
            base_offset=0,
            last_offset=start - 1,
        )


def _quorum(entry: FileEntry, state: QuorumState, last_epoch: int) -> Iterator[Finding]:
    voters = state.current_voters
    if voters and state.leader_id >= 0 and state.leader_id not in voters:
        yield finding("quorum-state-wrong", entry.path, f"leader {state.leader_id} is not among the voters {voters}")
    if state.leader_epoch < last_epoch:
        yield finding("quorum-state-wrong", entry.path, f"epoch {state.leader_epoch}, but the log has batches of epoch {last_epoch}")


def check_snapshot(entry: FileEntry, files: Files) -> Iterator[Finding]:
    """A snapshot of the metadata log by itself."""
    from kops.records import BytesSource, Damage, scan

    data = files.read_all(entry.path)
    if not data:
        yield finding("metadata-snapshot-malformed", entry.path, "the file is empty")
        return
    last: Batch | None = None
    for item in scan(BytesSource(data), resync=False):
        if isinstance(item, Damage):
            detail = f"{item.reason}, at byte {item.position} of {len(data)}"
            yield finding("metadata-snapshot-malformed", entry.path, detail, position=item.position, length=item.length)
            return
        problems = item.check()
        if problems:
            yield finding("metadata-snapshot-malformed", entry.path, problems[0].reason, position=item.position, length=item.size)
            return
        if last is None and control_types(item)[:1] != ["SNAPSHOT_HEADER"]:
            yield finding("metadata-snapshot-malformed", entry.path, "it does not begin with a snapshot's header", position=0)
            return
        last = item
    if last is not None and control_types(last)[-1:] != ["SNAPSHOT_FOOTER"]:
        yield finding("metadata-snapshot-incomplete", entry.path, position=last.position + last.size)


def control_types(batch: Batch) -> list[str]:
    """The types of the control records in a batch; none for a batch of data or one that can't be read."""
    from kops.metadata.raft.log.control_records import check_control_record

    if not batch.is_control:
        return []
    try:
        return [check_control_record(batch, record) for record in batch.records()]
    except DecodeError:
        return []
