"""What a share partition asks of the persister, which keeps its state at the share coordinator.

Sources: Persister, PartitionAllData, PartitionStateBatchData, SharePartition.fetchPersisterError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share.batches import StateBatch
from kops.coordinators.share.key import SharePartitionKey
from kops.errors import ApiError

_RENAMED: Final = {
    "NOT_COORDINATOR": "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_NOT_AVAILABLE": "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS": "COORDINATOR_NOT_AVAILABLE",
    "GROUP_ID_NOT_FOUND": "GROUP_ID_NOT_FOUND",
    "UNKNOWN_TOPIC_OR_PARTITION": "UNKNOWN_TOPIC_OR_PARTITION",
    "FENCED_LEADER_EPOCH": "NOT_LEADER_OR_FOLLOWER",
    "FENCED_STATE_EPOCH": "NOT_LEADER_OR_FOLLOWER",
}
_HIDDEN: Final = ("SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_VERSION")


class PersistedState(NamedTuple):
    """What the persister knows of a share partition. A start offset of -1: the group has not begun to read it."""

    state_epoch: int
    start_offset: int
    batches: Sequence[StateBatch] = ()


class StateWrite(NamedTuple):
    """What it shall know."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]


class PartitionPersister(Protocol):
    """Reads and writes the state of one share partition. A promise fails with the ApiError that the share coordinator answered."""

    def read_state(self, key: SharePartitionKey, leader_epoch: int) -> Promise[PersistedState]:
        """What is known."""

    def write_state(self, key: SharePartitionKey, write: StateWrite) -> Promise[None]:
        """Write batches and the start offset."""


def client_error(error: ApiError) -> ApiError:
    """The share coordinator's error as a consumer gets it."""
    if error.name in _HIDDEN:
        return ApiError("UNKNOWN_SERVER_ERROR", "Unable to complete operation due to server error.")
    return ApiError(_RENAMED.get(error.name, "UNKNOWN_SERVER_ERROR"), error.message)
