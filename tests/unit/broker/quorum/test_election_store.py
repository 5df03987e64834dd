"""`quorum-state` as Kafka's FileQuorumStateStore writes and reads it."""

from __future__ import annotations

import pytest

from kops.broker.quorum.election_store import FileElectionStore
from kops.errors import DecodeError
from kops.files import MemoryFiles
from kops.metadata.raft.roles.election import ElectionState
from kops.metadata.raft.voters.replica import ReplicaKey

DIRECTORY_ID = bytes(range(16))
STATES = (
    (
        0,
        ElectionState(7, 2, None, frozenset((3, 1, 2))),
        '{"clusterId":"","leaderId":2,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}',
    ),
    (
        0,
        ElectionState(1, None, ReplicaKey(3), frozenset((17, 1))),
        '{"clusterId":"","leaderId":-1,"leaderEpoch":1,"votedId":3,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":17}],"data_version":0}',
    ),
    (
        1,
        ElectionState(9, None, ReplicaKey(3, DIRECTORY_ID)),
        '{"leaderId":-1,"leaderEpoch":9,"votedId":3,"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw","data_version":1}',
    ),
    (
        1,
        ElectionState(0),
        '{"leaderId":-1,"leaderEpoch":0,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
    ),
)


@pytest.mark.parametrize(("version", "election", "text"), STATES)
def test_written_and_read(version: int, election: ElectionState, text: str) -> None:
    files = MemoryFiles()
    store = FileElectionStore(files, "/")
    assert store.read() is None
    store.write(ElectionState(100, 100), 1)
    store.write(election, version)
    assert files.read_all("/quorum-state").decode() == text
    assert files.list("/") == ["quorum-state"]
    assert store.read() == election


def test_the_directory_of_a_vote_is_not_in_version_0() -> None:
    store = FileElectionStore(MemoryFiles(), "/")
    store.write(ElectionState(1, None, ReplicaKey(3, DIRECTORY_ID), frozenset((3,))), 0)
    assert store.read() == ElectionState(1, None, ReplicaKey(3), frozenset((3,)))


def test_damage_is_told() -> None:
    files = MemoryFiles()
    files.write_all("/quorum-state", b"{}")
    with pytest.raises(DecodeError, match="data_version"):
        FileElectionStore(files, "/").read()
