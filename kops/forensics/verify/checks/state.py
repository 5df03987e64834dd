"""Checks the other files of a partition against its logs: leader epochs, producer snapshots, aborted transactions, names.

Sources: Kafka's LeaderEpochFileCache and LeaderEpochCheckpointFile, ProducerStateManager (snapshots are written when a segment is rolled
and when a log is closed), TransactionIndex, PartitionMetadataFile, LogLoader (what a start does with each file).
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Set
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from kops.errors import DecodeError
from kops.forensics.findings.finding import Finding, finding
from kops.forensics.verify.facts.facts import LEGACY_EPOCH, EpochRun
from kops.forensics.verify.facts.producers import ABORT, BEGIN, ProducerFacts, Seen, SequenceBreak, TxnEvent
from kops.storage.formats.names import METADATA_TOPIC

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.inventory.tree import FileEntry, PartitionDir
    from kops.forensics.verify.checks.log import LogSegment, LogView
    from kops.storage.formats.leader_epoch_checkpoint import EpochEntry
    from kops.storage.formats.producer_snapshot import ProducerSnapshotEntry
    from kops.storage.segment_files.transaction_index import AbortedTxn

_DAY_MS: Final = 86_400_000
NO_EPOCH: Final = -1
_SNAPSHOTS_OF_ALL_FORMATS: Final = "leader-epoch-checkpoint"
_WITH_OFFSET: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".cleaned", ".swap")


# leader epochs ------------------------------------------------------------------------------------------------------------------------


def epoch_runs(view: LogView) -> list[tuple[EpochRun, str]]:
    """The changes of the leader epoch along the log, each with its file."""
    runs: list[tuple[EpochRun, str]] = []
    for segment in view.segments:
        for run in segment.facts.epochs:
            if not runs or runs[-1][0].epoch != run.epoch:
                runs.append((run, segment.path))
    return runs


def check_epoch_order(view: LogView) -> Iterator[Finding]:
    """Leader epochs never go back along a log, and once there is one every batch has one (any level)."""
    runs = epoch_runs(view)
    for number, (run, path) in enumerate(runs):
        if run.epoch == LEGACY_EPOCH:
            continue
        if run.epoch < NO_EPOCH:
            detail = f"the batch has leader epoch {run.epoch}"
            yield finding("leader-epoch-negative", path, detail, position=run.position, base_offset=run.base_offset)
            continue
        if number == 0:
            continue
        before = runs[number - 1][0].epoch
        if run.epoch < 0:
            if before >= 0:
                detail = f"the batch has no leader epoch, but the one before it has {before}"
                yield finding("leader-epoch-negative", path, detail, position=run.position, base_offset=run.base_offset)
        elif run.epoch < before:
            # Of one batch with a high epoch between two of the same lower epoch, the one is wrong, not those that follow.
            lone = number >= 2 and runs[number - 2][0].epoch == run.epoch
            wrong, where = runs[number - 1] if lone else (run, path)
            detail = f"leader epoch {wrong.epoch} " + (f"between batches of {run.epoch}" if lone else f"after {before}")
            yield finding("leader-epoch-back", where, detail, position=wrong.position, base_offset=wrong.base_offset)


def check_epoch_file(partition: PartitionDir, view: LogView, files: Files) -> Iterator[Finding]:
    """`leader-epoch-checkpoint` against the batches (level full)."""
    from kops.storage.formats.leader_epoch_checkpoint import effective_epochs, read_leader_epoch_checkpoint

    runs = [run for run, _ in epoch_runs(view) if run.epoch >= 0]
    entry = partition.file("leader-epoch-checkpoint")
    path = entry.path if entry is not None else f"{partition.path}/leader-epoch-checkpoint"
    if entry is None:
        if runs:
            yield finding("leader-epoch-file-missing", path, f"it is missing, but the batches have leader epochs up to {runs[-1].epoch}")
        return
    try:
        entries = read_leader_epoch_checkpoint(files.read_all(entry.path), file=entry.path)
        effective = effective_epochs(entries)
    except DecodeError as error:
        yield finding("leader-epoch-file-malformed", path, error.reason)
        return
    if effective != entries:
        yield finding("leader-epoch-file-wrong", path, f"of the {len(entries)} entries only {len(effective)} are in order")
    if not effective and runs and not entries:
        yield finding("leader-epoch-file-wrong", path, f"it is empty, but the batches have leader epochs up to {runs[-1].epoch}")
        return
    yield from _beyond_end(path, effective, view)
    yield from _epochs_agree(path, effective, runs)
    if not view.is_damaged:
        yield from _epochs_begin(path, effective, runs, view)
    if effective and view.segments:
        yield from _beginning(path, effective[0].start_offset, view)


def _beginning(path: str, known: int, view: LogView) -> Iterator[Finding]:
    """The beginning of the log: Kafka raises the start of the first epoch when it deletes the beginning."""
    base, checkpoint = view.start_offset, view.context.log_start
    if known < base:
        yield finding(
            "log-start-missing",
            view.segments[0].path,
            f"the log begins with offset {base}, but leader-epoch-checkpoint begins with {known}",
            base_offset=known,
            last_offset=base - 1,
        )
    elif checkpoint is not None and view.context.clean_stop and known < checkpoint <= view.end_offset:
        detail = f"log-start-offset-checkpoint says {checkpoint}, but {os.path.basename(path)} begins with {known}"
        yield finding("log-start-ahead", view.segments[0].path, detail, base_offset=known, last_offset=checkpoint - 1)


def _beyond_end(path: str, entries: list[EpochEntry], view: LogView) -> Iterator[Finding]:
    if view.tail_is_damaged:
        return
    for epoch in entries:
        if epoch.start_offset > view.end_offset:
            yield finding(
                "leader-epoch-beyond-end",
                path,
                f"epoch {epoch.epoch} begins with offset {epoch.start_offset}, but the log ends with {view.end_offset - 1}",
                base_offset=epoch.start_offset,
            )


def _epochs_agree(path: str, entries: list[EpochEntry], runs: list[EpochRun]) -> Iterator[Finding]:
    if not entries:
        return
    starts = [entry.start_offset for entry in entries]
    highest = -1
    for number, run in enumerate(runs):
        if run.epoch < highest:
            continue
        if number + 1 < len(runs) and runs[number + 1].epoch < run.epoch:
            continue  # The batch is wrong, which is reported elsewhere.
        highest = run.epoch
        place = bisect_right(starts, run.base_offset) - 1
        # Batches before the first entry were deleted logically: the log start offset is inside the first segment.
        known = entries[max(place, 0)].epoch
        if known != run.epoch and not (place < 0 and run.epoch < known):
            yield finding(
                "leader-epoch-file-wrong",
                path,
                f"the batches from offset {run.base_offset} on have leader epoch {run.epoch}, but the file says {known}",
                base_offset=run.base_offset,
            )


def _epochs_begin(path: str, entries: list[EpochEntry], runs: list[EpochRun], view: LogView) -> Iterator[Finding]:
    """Check that no epoch begins among the batches of another one, and that the first one begins where the log does."""
    if any(after.epoch < before.epoch for before, after in pairwise(runs)) or not runs or not entries:
        return
    bases = [run.base_offset for run in runs]
    for entry in entries:
        place = bisect_right(bases, entry.start_offset) - 1
        if place < 0 or entry.epoch == runs[place].epoch or entry.start_offset in (bases[place], view.end_offset):
            continue
        if view.cleaned_to <= entry.start_offset < view.end_offset:
            detail = f"epoch {entry.epoch} begins with offset {entry.start_offset}, the batches there have {runs[place].epoch}"
            yield finding("leader-epoch-file-wrong", path, detail, base_offset=entry.start_offset)
    first = entries[0].start_offset
    begin = max(view.start_offset, view.context.log_start or 0, bases[0])
    # No checkpoint says where the metadata log, or a directory from elsewhere, begins.
    known = view.topic != METADATA_TOPIC and (view.context.log_start is not None or view.start_offset == 0)
    if known and view.context.clean_stop and view.cleaned_to <= begin < first < view.end_offset:
        detail = f"it begins with offset {first}, but the log begins with {begin}"
        yield finding("leader-epoch-file-wrong", path, detail, base_offset=begin, last_offset=first - 1)


# producers ----------------------------------------------------------------------------------------------------------------------------


def check_producers(partition: PartitionDir, view: LogView, files: Files) -> Iterator[Finding]:
    """Sequences of idempotent producers, producer snapshots and transaction indexes against the log (level full)."""
    from kops.storage.formats.producer_snapshot import read_producer_snapshot

    state = ProducerFacts()
    snapshots = _snapshots(partition)
    read: dict[int, list[ProducerSnapshotEntry]] = {}
    for offset, entry in snapshots.items():
        try:
            read[offset] = read_producer_snapshot(files.read_all(entry.path), file=entry.path)
        except DecodeError as error:
            yield finding("snapshot-malformed", entry.path, error.reason, position=error.position)
    breaks: list[tuple[SequenceBreak, str]] = []
    transactions = _Transactions()
    for segment in view.segments:
        facts = segment.facts.producers
        if segment.base_offset in read:
            yield from _snapshot_agrees(snapshots[segment.base_offset], read[segment.base_offset], state, view)
        if facts is None:
            continue
        known = len(state.breaks)
        events = len(state.events)
        state.extend(facts)
        breaks += [(found, segment.path) for found in state.breaks[known:]]
        yield from _check_transaction_index(partition, segment, transactions, state.events[events:], view, files)
    if view.end_offset in read and not any(segment.base_offset == view.end_offset for segment in view.segments):
        yield from _snapshot_agrees(snapshots[view.end_offset], read[view.end_offset], state, view)
    yield from _sequences(breaks, view)
    yield from _snapshot_places(partition, snapshots, view)


def check_transactions(partition: PartitionDir, view: LogView, files: Files) -> Iterator[Finding]:
    """The transaction indexes alone; the facts must have producers."""
    state = ProducerFacts()
    transactions = _Transactions()
    for segment in view.segments:
        if segment.facts.producers is not None:
            events = len(state.events)
            state.extend(segment.facts.producers)
            yield from _check_transaction_index(partition, segment, transactions, state.events[events:], view, files)


def _sequences(breaks: list[tuple[SequenceBreak, str]], view: LogView) -> Iterator[Finding]:
    holes = sorted(view.holes)
    gaps: dict[int, SequenceBreak] = {}
    told: set[tuple[str, int]] = set()
    for found, path in breaks:
        before, after = found.before, found.after
        places = {(path, before.position), (path, after.position)}
        goes_back = after.base_offset <= before.last_offset
        if goes_back or places & view.misplaced or (path, before.position) in told or _hole_between(holes, before, after):
            told.add((path, after.position))
            continue
        earlier = gaps.get(found.producer_id)
        goes_on = earlier is not None and earlier.after.position == before.position and after.first_sequence > earlier.before.last_sequence
        if found.kind == "duplicate" and goes_on:
            continue  # The batch before had the wrong number; this one continues where the others were.
        if found.kind == "gap" and before.base_offset < view.cleaned_to:
            continue  # Compaction removed the batches between.
        if found.kind == "gap":
            gaps[found.producer_id] = found
        yield _sequence_finding(found, path)


def _sequence_finding(found: SequenceBreak, path: str) -> Finding:
    before, after = found.before, found.after
    who = f"producer {found.producer_id}"
    severity = None
    if found.kind == "epoch-back":
        code, detail = "producer-epoch-back", f"{who}: epoch {after.epoch} after {before.epoch}"
    else:
        code = "sequence-gap" if found.kind == "gap" else "sequence-duplicate"
        detail = f"{who}, epoch {after.epoch}: sequence {after.first_sequence} after {before.last_sequence} (epoch {before.epoch})"
        if found.kind == "gap" and after.timestamp - before.timestamp > _DAY_MS:
            severity = "info"
            detail += "; there is more than a day in between, so the producer may have been forgotten"
    return finding(
        code, path, detail, position=after.position, base_offset=after.base_offset, last_offset=after.last_offset, severity=severity
    )


def _hole_between(holes: list[tuple[int, int]], before: Seen, after: Seen) -> bool:
    # A marker after the last batch with records raises its `last_offset`, not its base offset.
    return any(first > before.base_offset and last < after.base_offset for first, last in holes)


# snapshots ----------------------------------------------------------------------------------------------------------------------------


def _snapshots(partition: PartitionDir) -> dict[int, FileEntry]:
    """Live producer snapshots by offset, in order."""
    found = {}
    for segment in partition.segments:
        entry = segment.files.get("snapshot")
        if entry is not None and segment.suffix == "":
            found[segment.base_offset] = entry
    for entry in partition.files:
        if entry.kind == "snapshot" and entry.suffix == "" and entry.offset is not None:
            found[entry.offset] = entry
    return dict(sorted(found.items()))


def snapshot_offsets(partition: PartitionDir) -> list[int]:
    """Offsets of the live producer snapshots."""
    return list(_snapshots(partition))


def _snapshot_agrees(entry: FileEntry, producers: list[ProducerSnapshotEntry], state: ProducerFacts, view: LogView) -> Iterator[Finding]:
    """A snapshot against the producers of the log before its offset. Producers that are no longer in the log can't be checked."""
    offset = entry.offset if entry.offset is not None else 0
    wrong = []
    for producer in producers:
        if producer.last_offset >= offset or producer.current_txn_first_offset >= offset:
            wrong.append(f"producer {producer.producer_id} reaches to {max(producer.last_offset, producer.current_txn_first_offset)}")
            continue
        seen = state.last_data.get(producer.producer_id)
        if seen is None or producer.last_sequence < 0 or view.is_damaged or view.holes or view.misplaced:
            continue
        problem = _disagreement(producer, seen, state.last[producer.producer_id].last_offset)
        if problem is not None and not (producer.last_offset < view.cleaned_to):
            wrong.append(problem)
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        yield finding("snapshot-wrong", entry.path, wrong[0] + more, last_offset=offset - 1)


def _disagreement(producer: ProducerSnapshotEntry, seen: Seen, marker_offset: int) -> str | None:
    if producer.producer_epoch < seen.epoch:
        return f"producer {producer.producer_id} has epoch {producer.producer_epoch}, but its last batch in the log has {seen.epoch}"
    # 0.11 counted a transaction's marker, later versions count data only.
    if producer.last_sequence != seen.last_sequence or producer.last_offset not in (seen.last_offset, marker_offset):
        return (
            f"producer {producer.producer_id} ends with offset {producer.last_offset} and sequence {producer.last_sequence}, "
            f"but its last batch in the log with {seen.last_offset} and {seen.last_sequence}"
        )
    return None


def _snapshot_places(partition: PartitionDir, snapshots: dict[int, FileEntry], view: LogView) -> Iterator[Finding]:
    if view.tail_is_damaged or not view.segments:
        return
    for offset, entry in snapshots.items():
        if offset > view.end_offset:
            yield finding("snapshot-beyond-end", entry.path, f"the log ends with offset {view.end_offset - 1}", base_offset=offset)
    written = view.context.clean_stop is True and view.end_offset > view.start_offset
    if written and view.end_offset not in snapshots and partition.file(_SNAPSHOTS_OF_ALL_FORMATS) is not None:
        path = f"{partition.path}/{view.end_offset:020d}.snapshot"
        detail = f"the log was closed cleanly at offset {view.end_offset}, when Kafka writes a snapshot"
        yield finding("snapshot-missing", path, detail, base_offset=view.end_offset)


# transactions -------------------------------------------------------------------------------------------------------------------------


class _Transactions:
    """Replays BEGIN, ABORT and COMMIT as ProducerStateManager does, and returns the entries that a transaction index should have."""

    def __init__(self) -> None:
        self.ongoing: dict[int, int] = {}
        self.unbegun: set[tuple[int, int]] = set()

    def take(self, events: list[TxnEvent]) -> list[AbortedTxn]:
        """Return the aborted transactions that end in these events. `unbegun` has (producer id, offset) of the markers of those that began
        earlier."""
        from kops.storage.segment_files.transaction_index import AbortedTxn

        aborted = []
        self.unbegun = set()
        for event in events:
            if event.kind == BEGIN:
                self.ongoing.setdefault(event.producer_id, event.offset)
                continue
            first = self.ongoing.pop(event.producer_id, None)
            if first is None and event.kind == ABORT:
                self.unbegun.add((event.producer_id, event.offset))
            elif first is not None and event.kind == ABORT:
                stable = min(self.ongoing.values(), default=event.offset + 1)
                aborted.append(AbortedTxn(event.producer_id, first, event.offset, stable))
        return aborted


def _check_transaction_index(
    partition: PartitionDir, segment: LogSegment, transactions: _Transactions, events: list[TxnEvent], view: LogView, files: Files
) -> Iterator[Finding]:
    from kops.storage.segment_files.transaction_index import ENTRY_SIZE, check_transaction_index, read_transaction_index

    expected = transactions.take(events)
    entry = next(
        (found.files.get("txnindex") for found in partition.segments if found.base_offset == segment.base_offset and found.suffix == ""),
        None,
    )
    comparable = not view.is_damaged and segment.next_offset > view.cleaned_to and not view.misplaced
    if entry is None:
        if expected and comparable:
            path = segment.path[: -len("log")] + "txnindex"
            detail = f"the segment has the abort markers of {len(expected)} transactions"
            first, last = expected[0].first_offset, expected[-1].last_offset
            yield finding("transaction-index-missing", path, detail, base_offset=first, last_offset=last)
        return
    data = files.read_all(entry.path)
    try:
        entries = read_transaction_index(data, file=entry.path)
        check_transaction_index(entries, segment.base_offset, file=entry.path)
    except DecodeError as error:
        yield finding("transaction-index-malformed", entry.path, error.reason, position=error.position)
        return
    strange = next((number for number, found in enumerate(entries) if found.stored_version != 0), None)
    if strange is not None:
        detail = f"entry {strange} has version {entries[strange].stored_version}"
        yield finding("transaction-index-malformed", entry.path, detail, position=strange * ENTRY_SIZE, length=ENTRY_SIZE)
        return
    if len(data) % ENTRY_SIZE:
        detail = f"{len(data)} bytes are not a multiple of {ENTRY_SIZE}"
        yield finding("transaction-index-malformed", entry.path, detail, position=len(data) - len(data) % ENTRY_SIZE)
    if comparable:
        yield from _transactions_agree(entry.path, entries, expected, transactions.unbegun, view)


def _transactions_agree(
    path: str, entries: list[AbortedTxn], expected: list[AbortedTxn], unbegun: Set[tuple[int, int]], view: LogView
) -> Iterator[Finding]:
    surely_there = max(view.start_offset, view.cleaned_to)  # Earlier batches may have been deleted or compacted.
    known = {(found.producer_id, found.last_offset): found for found in entries}
    wanted = {(found.producer_id, found.last_offset): found for found in expected}
    for key, want in wanted.items():
        have = known.get(key)
        if have is None:
            detail = f"the aborted transaction of producer {want.producer_id}, offsets {want.first_offset}-{want.last_offset}, is not in it"
        elif have.first_offset != want.first_offset and have.first_offset >= surely_there:
            detail = f"producer {want.producer_id}: the transaction begins with {want.first_offset}, not with {have.first_offset}"
        elif not 0 <= have.last_stable_offset <= have.last_offset + 1 or surely_there <= have.last_stable_offset < want.last_stable_offset:
            detail = f"producer {want.producer_id}: last stable offset {have.last_stable_offset}, expected {want.last_stable_offset}"
        else:
            continue
        yield finding("transaction-index-wrong", path, detail, base_offset=want.first_offset, last_offset=want.last_offset)
    for key, have in known.items():
        if key in wanted:
            continue
        possible = key in unbegun or have.last_offset < surely_there
        possible = possible and 0 <= have.first_offset <= have.last_offset and 0 <= have.last_stable_offset <= have.last_offset + 1
        if have.first_offset >= surely_there or not possible:
            detail = f"there is a transaction of producer {have.producer_id}, offsets {have.first_offset}-{have.last_offset} not in the log"
            yield finding("transaction-index-wrong", path, detail, base_offset=have.first_offset)


# names --------------------------------------------------------------------------------------------------------------------------------


def check_partition_metadata(partition: PartitionDir, view: LogView, files: Files) -> Iterator[Finding]:
    """`partition.metadata` (level full)."""
    from kops.storage.formats.partition_metadata import read_partition_metadata

    entry = partition.file("partition-metadata")
    if entry is None:
        if view.context.needs_metadata:
            yield finding("partition-metadata-missing", f"{partition.path}/partition.metadata")
        return
    try:
        read_partition_metadata(files.read_all(entry.path), file=entry.path)
    except DecodeError as error:
        yield finding("partition-metadata-malformed", entry.path, error.reason)


def check_files(partition: PartitionDir, files: Files, *, needs_time_index: bool, clean_stop: bool | None) -> Iterator[Finding]:
    """Check which files exist (every level). An index that a running broker has made since counts.

    A broker makes a segment's indexes at the first append (LazyIndex), so an empty active segment has none until then. A clean stop makes
    them (UnifiedLog.flush).
    """
    dead = partition.state == "delete"
    live = partition.live_segments
    for segment in partition.segments:
        entry = next(iter(segment.files.values()), None)
        if entry is None:
            continue
        log = segment.log
        if segment.suffix in (".cleaned", ".swap"):
            names = ", ".join(each.name for each in segment.files.values())
            yield finding("leftover-" + segment.state, (log or entry).path, names, base_offset=segment.base_offset)
        elif segment.suffix:
            yield finding("leftover-deleted", (log or entry).path, base_offset=segment.base_offset)
        elif dead:
            continue
        elif log is None:
            orphans = [kind for kind in ("index", "timeindex", "txnindex") if kind in segment.files]
            if orphans:
                path = f"{partition.path}/{segment.base_offset:020d}.log"
                yield finding("log-file-missing", path, f"its {', '.join(orphans)} are there without it", base_offset=segment.base_offset)
        elif segment is live[-1] and not log.size and clean_stop is not True:
            continue
        else:
            stem = log.path[: -len("log")]
            if "index" not in segment.files and not _has_come(stem + "index", files):
                yield finding("index-missing", stem + "index", base_offset=segment.base_offset)
            if "timeindex" not in segment.files and needs_time_index and not _has_come(stem + "timeindex", files):
                yield finding("time-index-missing", stem + "timeindex", base_offset=segment.base_offset)
    for each in partition.files:
        if each.offset is None and (each.kind in ("log", "index", "timeindex", "txnindex") or _ends_a_start(each.name)):
            yield finding("file-name-invalid", each.path, f"{each.name} has a suffix of segment files, but does not begin with an offset")
        elif each.suffix == ".tmp":
            yield finding("file-unknown", each.path, f"{each.name}: left by an interrupted write of the file without .tmp")
    for each in partition.unknown:
        if _ends_a_start(each.name):
            yield finding("file-name-invalid", each.path, f"{each.name} has a suffix of segment files, but does not begin with an offset")
        else:
            yield finding("file-unknown", each.path, f"{each.name} is not one of Kafka's files")


def _has_come(path: str, files: Files) -> bool:
    """Whether the file is there by now (a directory does not count)."""
    try:
        return files.stat(path).is_file
    except FileNotFoundError:
        return False


def _ends_a_start(name: str) -> bool:
    """Whether a broker that loads the partition fails on this name, because it expects an offset in it."""
    from kops.storage.formats.names import offset_from_file_name

    if not name.endswith(_WITH_OFFSET):
        return False
    try:
        offset_from_file_name(name)
    except DecodeError:
        return True
    return False
