"""Metadata logs of Kafka, processed as a follower does: append batch by batch, read voters and epochs, fetch snapshots."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest

from kops.metadata.raft.log.control_records import read_snapshot_header
from kops.metadata.raft.log.control_state import ControlState, snapshot_batches
from kops.metadata.raft.log.log import EndKind, validate_end
from kops.metadata.raft.voters.replica import OffsetAndEpoch
from kops.metadata.raft.voters.voter_set import NO_VOTERS
from kops.records import read_batches
from kops.storage.formats.quorum_state import read_quorum_state
from tests.simulation.raft.raft_log import MemoryLog, MemorySnapshot
from tests.support import corpus

SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint$")
CASES = ("cluster-3.9.1", "cluster-4.3.0")


def folders(case: corpus.Case) -> dict[str, list[str]]:
    """Return the files of each metadata log."""
    found: dict[str, list[str]] = {}
    for path in case.files("nodes"):
        parent = PurePosixPath(path).parent
        if parent.name == "__cluster_metadata-0":
            found.setdefault(parent.as_posix(), []).append(path)
    return found


def loaded(case: corpus.Case, files: list[str]) -> MemoryLog:
    """Return the log as a follower fetches it, and its snapshots."""
    log = MemoryLog()
    for path in files:
        if path.endswith(".log"):
            data = case.read(path)
            batches = read_batches(data)
            log.start_offset = batches[0].base_offset if not log.entries else log.start_offset
            log.append_as_follower(data, max(batch.partition_leader_epoch for batch in batches))
        elif match := SNAPSHOT.search(path):
            log.snapshots[OffsetAndEpoch(offset=int(match[1]), epoch=int(match[2]))] = case.read(path)
    return log


@pytest.mark.parametrize("case_id", CASES)
def test_a_metadata_log_is_taken_whole(case_id: str) -> None:
    case = corpus.load(case_id)
    logs = {folder: loaded(case, files) for folder, files in folders(case).items()}
    assert len(logs) >= 3
    for folder, log in logs.items():
        assert log.entries
        state = read_quorum_state(case.read(f"{folder}/quorum-state"))
        assert log.last_fetched_epoch == log.entries[-1].epoch <= state.leader_epoch
        control = ControlState(NO_VOTERS, log)
        control.update()
        # A dynamic quorum's state file has version 1. Its voters are in the log or in the snapshot of the formatting.
        assert control.kraft_version == state.data_version
        assert (len(control.last_voters) > 0) == (state.data_version == 1)
        for entry in log.entries:
            assert validate_end(log, entry.end_offset, entry.epoch).kind is EndKind.VALID
        beyond = validate_end(log, log.end_offset + 1, log.last_fetched_epoch)
        assert (beyond.kind, beyond.end.offset) == (EndKind.DIVERGING, log.end_offset)


@pytest.mark.parametrize("case_id", CASES)
def test_snapshots_are_read(case_id: str) -> None:
    """The header comes first, and offsets are contiguous from 0. The time in the header is one of the log's."""
    case = corpus.load(case_id)
    seen = 0
    for files in folders(case).values():
        log = loaded(case, files)
        times = {batch.max_timestamp for entry in log.entries for batch in read_batches(entry.data)}
        for snapshot_id, data in log.snapshots.items():
            batches = list(snapshot_batches(MemorySnapshot(log, snapshot_id, data)))
            assert [batch.base_offset for batch in batches] == [0, *(batch.last_offset + 1 for batch in batches[:-1])]
            assert sum(batch.size for batch in batches) == len(data)
            stamp = read_snapshot_header(batches[0])
            assert snapshot_id.offset == 0 or stamp in times
            seen += 1
    assert seen >= 4
