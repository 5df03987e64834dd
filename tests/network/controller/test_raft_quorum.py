"""Three nodes on loopback with their logs on disk: they elect a leader, replicate, continue without it, and come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.broker.quorum.raft_log import METADATA_DIR
from kops.errors import LockHeldError
from kops.metadata.raft.voters.replica import OffsetAndEpoch
from kops.storage.failures.load_errors import LoadError
from kops.storage.formats.quorum_state import read_quorum_state
from tests.support.nodes.raft_quorum import LocalQuorum, Told

ALL = (1, 2, 3)


def values(first: int, count: int) -> list[bytes]:
    """Return the values of records."""
    return [b"%05d" % number for number in range(first, first + count)]


def log_bytes(directory: Path) -> bytes:
    """Return all segments of a node's log."""
    return b"".join(path.read_bytes() for path in sorted((directory / METADATA_DIR).glob("*.log")))


@pytest.mark.parametrize("kraft_version", [0, 1])
@pytest.mark.parametrize("cleanly", [True, False])
def test_a_quorum_outlives_its_leader(tmp_path: Path, kraft_version: int, cleanly: bool) -> None:
    with LocalQuorum(tmp_path, 3, kraft_version=kraft_version) as quorum:
        first = quorum.append(values(0, 50))
        quorum.wait_for_values(values(0, 50))
        quorum.stop(first, cleanly=cleanly)
        others = [id for id in ALL if id != first]
        # If a leader does not resign, the others notice its absence only by its silence.
        second = quorum.append(values(50, 50))
        assert second in others
        quorum.wait_for_values(values(0, 100), *others)
        quorum.open(first)
        quorum.append(values(100, 1))
        quorum.wait_for_values(values(0, 101))
        epochs = [quorum.nodes[id].raft.node.state.epoch for id in ALL]
        ends = [quorum.nodes[id].raft.log.end_offset for id in ALL]
    assert len(set(ends)) == 1
    for id, epoch in zip(ALL, epochs, strict=True):
        state = read_quorum_state((tmp_path / f"node-{id}" / METADATA_DIR / "quorum-state").read_bytes())
        assert (state.data_version, state.leader_epoch) == (kraft_version, epoch)
        assert sorted(state.current_voters or ()) == ([] if kraft_version else list(ALL))
    assert len({log_bytes(tmp_path / f"node-{id}") for id in ALL}) == 1


def test_a_quorum_starts_from_its_disks(tmp_path: Path) -> None:
    """All nodes stop at once, and all come back. No committed record is lost."""
    with LocalQuorum(tmp_path, 3, kraft_version=1) as quorum:
        for turn in range(3):
            quorum.append(values(turn * 20, 20))
            quorum.wait_for_values(values(0, turn * 20 + 20))
            for id in ALL:
                quorum.stop(id, cleanly=False)
            for id in ALL:
                quorum.open(id)
        quorum.wait_for_values(values(0, 60))


def test_a_snapshot_is_fetched(tmp_path: Path) -> None:
    """A node comes back when the log that it lacks is gone. It takes the leader's snapshot, and the records after it."""
    with LocalQuorum(tmp_path, 3, kraft_version=1) as quorum:
        leader_id = quorum.append(values(0, 10))
        quorum.wait_for_values(values(0, 10))
        late = next(id for id in ALL if id != leader_id)
        quorum.stop(late, cleanly=False)
        leader = quorum.nodes[leader_id]
        for turn in range(1, 12):
            batch = [value * 40 for value in values(turn * 10, 10)]
            quorum.append(batch)
            quorum.wait_for(lambda batch=batch: leader.told.values[-10:] == batch)  # type: ignore[misc]

        def snapshot(count: int) -> OffsetAndEpoch:
            """Take a snapshot without the last `count` records."""
            log = leader.raft.log
            snapshot_id = OffsetAndEpoch(offset=log.end_offset - count, epoch=log.last_fetched_epoch)
            writer = leader.raft.create_snapshot(snapshot_id, 0)
            assert writer is not None
            writer.append([b"state"], 0)
            writer.freeze(0)
            return snapshot_id

        ids = quorum.thread.call(lambda: [snapshot(20), snapshot(10)])
        assert quorum.thread.call(lambda: leader.raft.log.maybe_clean(0))
        assert leader.raft.log.start_offset == ids[1].offset
        with pytest.raises(LoadError, match="not batch aligned"):
            quorum.thread.call(lambda: snapshot(5))
        quorum.open(late)
        quorum.wait_for(lambda: quorum.nodes[late].told.snapshots[-1:] == [ids[1].offset])
        quorum.append(values(900, 1))
        quorum.wait_for(lambda: quorum.nodes[late].told.values[-1:] == values(900, 1))
        told = quorum.thread.call(lambda: _registered(quorum, late))
        assert (told.snapshots, told.values) == ([ids[1].offset], quorum.nodes[late].told.values)
        assert told.leaders == quorum.nodes[late].told.leaders[-1:]


def _registered(quorum: LocalQuorum, node_id: int) -> Told:
    """Register a listener that comes later."""
    told = Told()
    quorum.nodes[node_id].raft.register(told)
    return told


def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    with LocalQuorum(tmp_path, 1, kraft_version=1) as quorum:
        quorum.append(values(0, 3))
        quorum.wait_for_values(values(0, 3))
        with pytest.raises(LockHeldError):
            quorum.open(1)
