"""Rebuilds damaged transaction markers if other files of the partition show what they were.

Without its marker a transaction stays open forever, and consumers that read committed records stop before it. A marker holds only its kind
(commit or abort) and the coordinator's epoch (Kafka's EndTransactionMarker). The segment's transaction index says whether it was an abort.
The next producer snapshot says that the transaction ended, and has the coordinator's epoch. Without both nothing is guessed.
"""

from __future__ import annotations

from bisect import bisect_left

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.inventory.tree import PartitionDir
from kops.forensics.plans.items import Bad, Item, item_batch
from kops.forensics.repair.log import MendedLog
from kops.records import Batch
from kops.records.build import end_txn_marker
from kops.records.record import read_control_record
from kops.storage.formats.producer_snapshot import ProducerSnapshotEntry, read_producer_snapshot
from kops.storage.segment_files.transaction_index import ENTRY_SIZE, check_transaction_index, read_transaction_index

__all__ = ["restore_markers"]


def restore_markers(files: Files, partition: PartitionDir, mended: MendedLog) -> int:
    """Put the markers that can be rebuilt into `mended.log`. Returns how many."""
    restored = 0
    for bad in mended.bad:
        header = bad.header
        if bad.code != "crc-mismatch" or header is None or not header.control or header.span != 1:
            continue
        place = bisect_left(mended.log, header.base, key=lambda item: item.base)
        fits = place > 0 and mended.log[place - 1].last == header.base - 1
        if not fits or (place < len(mended.log) and mended.log[place].base <= header.base):
            continue
        marker = _marker(files, partition, mended.log, place, bad, header)
        if marker is not None:
            mended.log.insert(place, marker)
            restored += 1
    return restored


def _marker(files: Files, partition: PartitionDir, log: list[Item], place: int, bad: Bad, header: Item) -> Item | None:
    before = log[:place]
    mine = [item for item in before if item.producer_id == header.producer_id]
    if not mine or mine[-1].control or not mine[-1].transactional or header.producer_epoch - mine[-1].producer_epoch not in (0, 1):
        return None
    aborted = _is_abort(files, partition, log, bad, header)
    state = _next_snapshot(files, partition, header)
    ended = state is not None and not 0 <= state.current_txn_first_offset <= header.base
    if aborted is None or not (aborted or ended):
        return None
    data = end_txn_marker(
        header.base,
        header.max_timestamp,
        commit=not aborted,
        coordinator_epoch=state.coordinator_epoch if state is not None else 0,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        partition_leader_epoch=before[-1].epoch,
    )
    batch = Batch(data)
    batch.position = bad.position
    kind = "abort" if aborted else "commit"
    return Item.of(bad.path, batch, data=data, note=f"the {kind} marker of producer {header.producer_id} at offset {header.base} rebuilt")


def _is_abort(files: Files, partition: PartitionDir, log: list[Item], bad: Bad, header: Item) -> bool | None:
    """Whether the segment's transaction index has an abort. None if it is not trustworthy: it must have the segment's other aborts."""
    segment = next((each for each in partition.live_segments if each.log is not None and each.log.path == bad.path), None)
    entry = segment.files.get("txnindex") if segment is not None else None
    data = files.read_all(entry.path) if entry is not None else b""
    try:
        entries = read_transaction_index(data)
        check_transaction_index(entries, segment.base_offset if segment is not None else 0)
    except DecodeError:
        return None
    known = {(found.producer_id, found.last_offset) for found in entries}
    others = {(item.producer_id, item.base) for item in log if item.path == bad.path and item.control and _kind(files, item) == "ABORT"}
    if len(data) % ENTRY_SIZE or not others <= known:
        return None
    return (header.producer_id, header.base) in known


def _kind(files: Files, item: Item) -> str:
    return read_control_record(item_batch(files, item).records()[0]).type


def _next_snapshot(files: Files, partition: PartitionDir, header: Item) -> ProducerSnapshotEntry | None:
    """Return the producer in the first good snapshot after the marker."""
    entries = [
        entry for entry in partition.all_files() if entry.kind == "snapshot" and not entry.suffix and (entry.offset or 0) > header.base
    ]
    for entry in sorted(entries, key=lambda entry: entry.offset or 0):
        try:
            producers = read_producer_snapshot(files.read_all(entry.path), file=entry.path)
        except DecodeError:
            continue
        return next((found for found in producers if found.producer_id == header.producer_id), None)
    return None
