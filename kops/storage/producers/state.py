"""All producers of one partition, their open transactions, and the snapshots on disk (Kafka ProducerStateManager).

`ProducerState` is the map in memory, and `ProducerStateManager` adds the `.snapshot` files of a directory. The producers in a snapshot are
in the order of Java's HashMap, so the map keeps track of that order. Batches that are already in the log are added with `load_batches`. New
batches are added with `kops.storage.producers.checks.analyze_append` and `update`.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from mypy_extensions import mypyc_attr

from kops.config.values.java import to_long
from kops.config.values.java_hash import HashOrder
from kops.errors import ApiError, DecodeError
from kops.storage.failures.load_errors import CorruptSnapshotError, illegal_argument, io_error
from kops.storage.formats.producer_snapshot import ProducerSnapshotEntry, read_producer_snapshot, write_producer_snapshot
from kops.storage.producers.append import BatchMetadata, CompletedTxn, ProducerAppendInfo, ProducerStateEntry, TxnMetadata
from kops.storage.producers.verification import NO_GUARD, VerificationGuard, VerificationStateEntry
from kops.storage.segment_files.paths import DELETED, SNAPSHOT, is_file, offset_from_file, segment_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.files import Files
    from kops.records import Batch

DEFAULT_EXPIRATION_MS = 86_400_000
DEFAULT_MAX_TRANSACTION_TIMEOUT_MS = 900_000
LATE_TRANSACTION_BUFFER_MS = 300_000


class ActiveProducer(NamedTuple):
    """A producer in the answer to DescribeProducers. -1 stands for missing values."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


@mypyc_attr(allow_interpreted_subclasses=True)
class ProducerState:
    """Producers by id and transactions by first offset, as of `map_end_offset`, the offset after the last batch that was read."""

    topic_partition = ""
    verification_enabled = True

    def __init__(self) -> None:
        self.producers: dict[int, ProducerStateEntry] = {}
        self.verifications: dict[int, VerificationStateEntry] = {}
        self.ongoing_txns: dict[int, TxnMetadata] = {}
        self.unreplicated_txns: dict[int, TxnMetadata] = {}
        self.map_end_offset = 0
        self._order = HashOrder()

    @property
    def is_empty(self) -> bool:
        """Whether there is no producer and no transaction whose marker is above the high watermark."""
        return not self.producers and not self.unreplicated_txns

    def ordered(self) -> list[ProducerStateEntry]:
        """The producers in Java's iteration order."""
        return [self.producers[producer_id] for producer_id in self._order]

    def _put(self, entry: ProducerStateEntry) -> None:
        if entry.producer_id not in self.producers:
            self._order.put(entry.producer_id)
        self.producers[entry.producer_id] = entry

    def load_entry(self, entry: ProducerStateEntry) -> None:
        """Add a producer from a snapshot, with its open transaction."""
        self._put(entry)
        first_offset = entry.current_txn_first_offset
        if first_offset is not None:
            self.ongoing_txns[first_offset] = TxnMetadata(entry.producer_id, first_offset)

    def prepare_update(self, producer_id: int) -> ProducerAppendInfo:
        """Return the object that collects this producer's batches until `update` applies them to the state."""
        return ProducerAppendInfo(self.entry_or_empty(producer_id))

    def entry_or_empty(self, producer_id: int) -> ProducerStateEntry:
        """Return the producer's state, or an empty one if the producer is unknown."""
        return self.producers.get(producer_id) or ProducerStateEntry(producer_id)

    def update(self, info: ProducerAppendInfo) -> None:
        """Make the collected batches part of the producer's state."""
        current = self.producers.get(info.entry.producer_id)
        if current is None:
            self._put(info.entry)
        else:
            current.update(info.entry)
        for txn in info.started:
            self.ongoing_txns[txn.first_offset] = txn

    def complete_txn(self, completed: CompletedTxn) -> None:
        """End a transaction. It is kept until the high watermark passes its marker."""
        txn = self.ongoing_txns.pop(completed.first_offset, None)
        if txn is None:
            illegal_argument(f"Attempted to complete transaction {completed} which was not started")
        txn.last_offset = completed.last_offset
        self.unreplicated_txns[completed.first_offset] = txn

    def last_stable_offset(self, completed: CompletedTxn) -> int:
        """Return the offset below which every transaction will have ended once this one has: the first offset of the next open transaction,
        or the offset after this one's marker.
        """
        others = [txn.first_offset for txn in self.ongoing_txns.values() if txn.producer_id != completed.producer_id]
        return min(others, default=completed.last_offset + 1)

    @property
    def first_unstable_offset(self) -> int | None:
        """The lowest first offset of a transaction that is open, or that ended above the high watermark."""
        return min([*self.ongoing_txns, *self.unreplicated_txns], default=None)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Remove the transactions that ended below the high watermark."""
        self._remove_unreplicated_below(high_watermark)

    def _remove_unreplicated_below(self, offset: int) -> None:
        unreplicated = self.unreplicated_txns
        for first_offset, txn in list(unreplicated.items()):
            if txn.last_offset is not None and txn.last_offset < offset:
                del unreplicated[first_offset]

    # queries ----------------------------------------------------------------------------------------------------------------------

    def active_producers(self) -> list[ActiveProducer]:
        """Return all producers in Java's iteration order."""
        return [
            ActiveProducer(
                entry.producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
            )
            for entry in self.ordered()
        ]

    def find_duplicate_batch(self, batch: Batch) -> BatchMetadata | None:
        """Return the earlier write of the batch, if it is one of its producer's last five batches."""
        entry = self.producers.get(batch.producer_id)
        return None if entry is None else entry.find_duplicate_batch(batch)

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has an open transaction with exactly this epoch."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset is not None and entry.producer_epoch == producer_epoch

    def check_not_older(self, producer_id: int, producer_epoch: int) -> None:
        """Raise ApiError INVALID_PRODUCER_EPOCH if a later epoch of the producer was seen."""
        entry = self.producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            reason = (
                f"Epoch of producer {producer_id} is {producer_epoch}, which is smaller than the last seen epoch {entry.producer_epoch}"
            )
            raise ApiError("INVALID_PRODUCER_EPOCH", reason)

    def has_late_transaction(self, now_ms: int, max_transaction_timeout_ms: int) -> bool:
        """Whether the producer of the oldest open transaction has been silent for five minutes longer than a transaction may last."""
        if not self.ongoing_txns:
            return False
        entry = self.producers.get(self.ongoing_txns[min(self.ongoing_txns)].producer_id)
        last_timestamp = -1 if entry is None else entry.last_timestamp
        return last_timestamp > 0 and now_ms - last_timestamp > max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    # verification of transactions -------------------------------------------------------------------------------------------------

    def start_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """Return the guard that a transaction's first append must present (UnifiedLog.maybeStartTransactionVerification).

        Returns `NO_GUARD` if the transaction is open already and needs no verification. Raises ApiError INVALID_PRODUCER_EPOCH.
        """
        self.check_not_older(producer_id, producer_epoch)
        if self.has_ongoing_transaction(producer_id, producer_epoch):
            return NO_GUARD
        entry = self.verifications.get(producer_id)
        if entry is None:
            entry = self.verifications[producer_id] = VerificationStateEntry(now_ms, sequence, producer_epoch, supports_epoch_bump)
        entry.see(sequence, producer_epoch)
        return entry.guard

    def verification_guard(self, producer_id: int) -> VerificationGuard:
        """The guard of the current verification, or `NO_GUARD`."""
        entry = self.verifications.get(producer_id)
        return NO_GUARD if entry is None else entry.guard

    def end_verification(self, batch: Batch) -> None:
        """End a verification, because a transactional batch or marker is in the log. In version 2, the next transaction may already be
        under verification, which continues.
        """
        entry = self.verifications.get(batch.producer_id)
        if entry is not None and not (entry.supports_epoch_bump and batch.is_control and batch.producer_epoch == entry.epoch):
            del self.verifications[batch.producer_id]

    def _clear(self) -> None:
        self.producers.clear()
        self._order.clear()
        self.ongoing_txns.clear()
        self.unreplicated_txns.clear()

    def load_batches(self, batches: Iterable[Batch]) -> None:
        """Read batches back in bulk (UnifiedLog.loadProducersFromRecords). The state changes only after the last batch."""
        loaded: dict[int, ProducerAppendInfo] = {}
        order = HashOrder()
        completed = []
        # Compiled code must ask for the fields by name. A batch that can't be read lacks some, and a FileBatch then raises LoadError.
        for batch in cast("Iterable[Any]", batches):
            if batch.magic < 2:
                continue
            producer_id = batch.producer_id
            if producer_id < 0:
                continue
            order.before_compute_if_absent()
            info = loaded.get(producer_id)
            if info is None:
                info = loaded[producer_id] = self.prepare_update(producer_id)
                order.compute_if_absent(producer_id)
            txn = info.append(batch)
            if txn is not None:
                completed.append(txn)
            if batch.is_transactional:
                self.end_verification(batch)
        for producer_id in order:
            self.update(loaded[producer_id])
        for txn in completed:
            self.complete_txn(txn)


@mypyc_attr(allow_interpreted_subclasses=True)
class ProducerStateManager(ProducerState):
    """The state and the snapshots of one partition directory. The constructor lists the snapshots."""

    def __init__(
        self,
        files: Files,
        directory: str,
        expiration_ms: int,
        *,
        topic_partition: str | None = None,
        verification_enabled: bool = True,
    ) -> None:
        super().__init__()
        self.topic_partition = posixpath.basename(directory) if topic_partition is None else topic_partition
        self.verification_enabled = verification_enabled
        self._files = files
        self._directory = directory
        self.expiration_ms = expiration_ms
        self._last_snapshot_offset = 0
        self._snapshots = self._list_snapshots()

    def _list_snapshots(self) -> dict[int, str]:
        """Return the paths by offset. If two names have the same offset, the later name counts."""
        found = {}
        for name in self._files.list(self._directory):
            path = posixpath.join(self._directory, name)
            if name.endswith(SNAPSHOT) and is_file(self._files, path):
                found[offset_from_file(name)] = path
        return found

    @property
    def latest_snapshot_offset(self) -> int | None:
        """The newest snapshot's offset, or None."""
        return max(self._snapshots, default=None)

    @property
    def oldest_snapshot_offset(self) -> int | None:
        """The oldest snapshot's offset, or None."""
        return min(self._snapshots, default=None)

    def snapshot_path(self, offset: int) -> str | None:
        """The path of the snapshot at this offset, or None (fetchSnapshot)."""
        return self._snapshots.get(offset)

    def update_directory(self, directory: str) -> None:
        """Use the directory's new name."""
        self._directory = directory
        self._snapshots = {offset: posixpath.join(directory, posixpath.basename(path)) for offset, path in self._snapshots.items()}

    # taking and loading -----------------------------------------------------------------------------------------------------------

    def take_snapshot(self, *, sync: bool = True) -> str | None:
        """Write the state to a snapshot and sync it, if it is newer than the last one. Returns the path of the new file, or None.

        Without `sync`, the caller has to sync the file. An older file of that name is overwritten but not truncated. As in Kafka, the rest
        of a longer file stays after the new contents.
        """
        if self.map_end_offset <= self._last_snapshot_offset:
            return None
        path = segment_path(self._directory, self.map_end_offset, SNAPSHOT)
        data = snapshot_bytes(self)
        with self._files.open(path, "create") as file:
            file.write(0, data)
            if sync:
                file.sync()
        self._snapshots[self.map_end_offset] = path
        self._last_snapshot_offset = self.map_end_offset
        return path

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Return to the newest snapshot within the log, and delete the snapshots outside the log."""
        for offset in sorted(self._snapshots):
            if offset > log_end_offset or offset <= log_start_offset:
                self._remove_snapshot(offset)
        if log_end_offset != self.map_end_offset:
            self._clear()
            self._load_from_snapshot(log_start_offset, now_ms)
        else:
            self.on_log_start_offset_incremented(log_start_offset)

    def _load_from_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        while self._snapshots:
            offset = max(self._snapshots)
            try:
                entries = self._read_snapshot(self._snapshots[offset])
            except CorruptSnapshotError:
                self._remove_snapshot(offset)
                continue
            for entry in entries:
                if not self._is_expired(entry, now_ms):
                    self.load_entry(entry)
            self._last_snapshot_offset = self.map_end_offset = offset
            return
        self._last_snapshot_offset = self.map_end_offset = log_start_offset

    def _read_snapshot(self, path: str) -> list[ProducerStateEntry]:
        try:
            return [_from_snapshot(entry) for entry in read_producer_snapshot(self._files.read_all(path), file=path)]
        except DecodeError as error:
            raise CorruptSnapshotError(str(error)) from error

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        return entry.current_txn_first_offset is None and to_long(now_ms - entry.last_timestamp) >= self.expiration_ms

    def remove_expired_producers(self, now_ms: int) -> None:
        """Remove the producers that have written nothing within the expiration time and have no open transaction, and verifications of that
        age.
        """
        for producer_id in [entry.producer_id for entry in self.producers.values() if self._is_expired(entry, now_ms)]:
            del self.producers[producer_id]
            self._order.remove(producer_id)
        for producer_id, verification in list(self.verifications.items()):
            if now_ms - verification.timestamp >= self.expiration_ms:
                del self.verifications[producer_id]

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Record the log's new start offset."""
        self._remove_unreplicated_below(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.latest_snapshot_offset
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    # removing ---------------------------------------------------------------------------------------------------------------------

    def remove_stray_snapshots(self, segment_base_offsets: Iterable[int]) -> None:
        """List the snapshots again, and delete those that belong to no segment. The newest one stays if it is above all segments."""
        base_offsets = set(segment_base_offsets)
        self._snapshots = self._list_snapshots()
        strays = [offset for offset in sorted(self._snapshots) if offset not in base_offsets]
        for offset in strays[:-1]:
            self._remove_snapshot(offset)
        if strays and base_offsets and strays[-1] < max(base_offsets):
            self._remove_snapshot(strays[-1])

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove the whole state and delete all snapshots."""
        self._clear()
        for snapshot in sorted(self._snapshots):
            self._remove_snapshot(snapshot)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def remove_and_mark_for_deletion(self, offset: int) -> str | None:
        """Rename the snapshot of a removed segment. Returns None if the file is already gone."""
        path = self._snapshots.pop(offset, None)
        if path is None:
            return None
        try:
            self._files.rename(path, path + DELETED)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise io_error(error) from error
        return path + DELETED

    def _remove_snapshot(self, offset: int) -> None:
        path = self._snapshots.pop(offset)
        if self._files.exists(path):
            self._files.unlink(path)


def snapshot_bytes(state: ProducerState) -> bytes:
    """Return the contents of a `.snapshot` file for this state."""
    return write_producer_snapshot([_to_snapshot(entry) for entry in state.ordered()])


def load_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> ProducerState:
    """Return the state of a `.snapshot` file. No producer counts as expired."""
    state = ProducerState()
    for entry in entries:
        state.load_entry(_from_snapshot(entry))
    return state


def _to_snapshot(entry: ProducerStateEntry) -> ProducerSnapshotEntry:
    first_offset = entry.current_txn_first_offset
    return ProducerSnapshotEntry(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_offset=entry.last_data_offset,
        offset_delta=entry.last_offset_delta,
        timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_first_offset=-1 if first_offset is None else first_offset,
    )


def _from_snapshot(entry: ProducerSnapshotEntry) -> ProducerStateEntry:
    first_offset = entry.current_txn_first_offset
    state = ProducerStateEntry(
        entry.producer_id, entry.producer_epoch, entry.coordinator_epoch, entry.timestamp, None if first_offset < 0 else first_offset
    )
    if entry.last_offset >= 0:
        batch = BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
        state.add_batch(entry.producer_epoch, batch)
    return state
