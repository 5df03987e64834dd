"""Directories of the metadata log that real quorums left, opened and closed as a node does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kops.broker.quorum.election_store import FileElectionStore
from kops.broker.quorum.raft_log import METADATA_DIR, KafkaRaftLog, MetadataLogSettings
from kops.files import OsFiles
from kops.metadata.raft.log.control_state import ControlState, snapshot_batches
from kops.metadata.raft.voters.replica import OffsetAndEpoch
from kops.metadata.raft.voters.voter_set import NO_VOTERS
from kops.records import read_batches
from kops.storage.formats.quorum_state import read_quorum_state
from kops.storage.scheduler import Scheduler
from tests.support import corpus

CASES = ("cluster-3.9.1", "cluster-4.3.0")
NOW_MS = 1_900_000_000_000


def opened(directory: Path) -> tuple[KafkaRaftLog, Scheduler]:
    """Return the log of a directory."""
    scheduler = Scheduler(lambda: NOW_MS)
    log = KafkaRaftLog.open(OsFiles(), str(directory.parent), MetadataLogSettings(), now_ms=lambda: NOW_MS, scheduler=scheduler)
    return log, scheduler


def contents(directory: Path) -> dict[str, bytes]:
    """Return all files except `quorum-state`."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "quorum-state"}


def copies(case: corpus.Case, target: Path) -> list[Path]:
    """Return the metadata directories of all nodes that have one."""
    root = case.copy(target / "nodes", "nodes")
    return sorted(path for path in root.rglob(METADATA_DIR) if path.is_dir())


@pytest.mark.parametrize("case_id", CASES)
def test_a_directory_says_what_it_said(case_id: str, tmp_path: Path) -> None:
    """Ends, epochs, snapshots and votes are read from the bytes of the files alone."""
    found = copies(corpus.load(case_id), tmp_path)
    assert len(found) >= 3
    for directory in found:
        batches = read_batches(b"".join(path.read_bytes() for path in sorted(directory.glob("*.log"))))
        names = [re.fullmatch(r"(\d{20})-(\d{10})\.checkpoint", path.name) for path in directory.iterdir()]
        ids = sorted(OffsetAndEpoch(offset=int(name[1]), epoch=int(name[2])) for name in names if name)
        log, _ = opened(directory)
        assert (log.start_offset, log.end_offset) == (batches[0].base_offset, batches[-1].last_offset + 1)
        assert log.last_fetched_epoch == batches[-1].partition_leader_epoch
        assert (log.earliest_snapshot_id, log.latest_snapshot_id) == (ids[0], ids[-1])
        for snapshot_id in ids:
            source = log.read_snapshot(snapshot_id)
            assert source is not None
            assert sum(batch.size for batch in snapshot_batches(source)) == source.size > 0
        store = FileElectionStore(OsFiles(), str(directory))
        before = (directory / "quorum-state").read_bytes()
        election = store.read()
        assert election is not None
        assert election.epoch >= log.last_fetched_epoch
        control = ControlState(NO_VOTERS, log)
        control.update()
        store.write(election, control.kraft_version)
        after = (directory / "quorum-state").read_bytes()
        assert read_quorum_state(after).data_version == read_quorum_state(before).data_version == control.kraft_version
        assert after == before
        log.close()


@pytest.mark.parametrize("case_id", CASES)
def test_a_clean_close_changes_what_kafka_changes(case_id: str, tmp_path: Path) -> None:
    """Recovery writes indexes and the producer snapshot anew. A second start changes nothing."""
    for directory in copies(corpus.load(case_id), tmp_path):
        before = contents(directory)
        states = []
        for _ in range(2):
            log, scheduler = opened(directory)
            scheduler.run_due()
            log.close()
            states.append(contents(directory))
        first, second = states
        kept = [
            name for name in before if name.endswith((".log", ".checkpoint")) or name in ("partition.metadata", "leader-epoch-checkpoint")
        ]
        assert {name: first[name] for name in kept} == {name: before[name] for name in kept}
        changed = {name for name in before.keys() | first.keys() if before.get(name) != first.get(name)}
        assert all(name.endswith((".index", ".timeindex", ".snapshot")) for name in changed), changed
        assert second == first
