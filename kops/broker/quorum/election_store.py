"""Stores the election state that a node must not forget, in the file `quorum-state` in the directory of the metadata log.

Source: Kafka's FileQuorumStateStore and ElectionState; the format is `kops.storage.formats.quorum_state`.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from kops.config.values.java_hash import HashOrder
from kops.metadata.raft.roles.election import ElectionState
from kops.metadata.raft.voters.replica import NO_ID, ReplicaKey
from kops.storage.formats.kafka_uuid import uuid_bytes, uuid_text
from kops.storage.formats.names import QUORUM_STATE
from kops.storage.formats.quorum_state import QuorumState, read_quorum_state, write_quorum_state

if TYPE_CHECKING:
    from kops.files import Files


class FileElectionStore:
    """ElectionStore in the directory of the metadata log."""

    def __init__(self, files: Files, directory: str) -> None:
        self.path = posixpath.join(directory, QUORUM_STATE)
        self._files = files

    def read(self) -> ElectionState | None:
        """Return the state written last; None if there is no file. Raises DecodeError (`quorum-state`), OSError."""
        if not self._files.exists(self.path):
            return None
        state = read_quorum_state(self._files.read_all(self.path), file=self.path)
        return ElectionState(
            epoch=state.leader_epoch,
            leader_id=None if state.leader_id == NO_ID else state.leader_id,
            voted_key=None if state.voted_id == NO_ID else ReplicaKey.read(state.voted_id, uuid_bytes(state.voted_directory_id)),
            voters=frozenset(state.current_voters or ()),
        )

    def write(self, election: ElectionState, data_version: int) -> None:
        """Write the state durably, in version 0 or 1 of the file. Raises OSError."""
        voted = election.voted_key
        state = QuorumState(
            data_version,
            leader_id=election.leader_id_or_none,
            leader_epoch=election.epoch,
            voted_id=NO_ID if voted is None else voted.id,
        )
        if data_version == 0:
            state.current_voters = _in_file_order(election.voters)
        elif voted is not None:
            state.voted_directory_id = uuid_text(voted.directory_id_or_zero)
        self._files.write_atomic(self.path, write_quorum_state(state))


def _in_file_order(voters: frozenset[int]) -> list[int]:
    """Return the voters in the order of Java's hash set, in which Kafka writes them."""
    order: HashOrder[int] = HashOrder()
    for voter in sorted(voters):
        order.put(voter)
    return list(order)
