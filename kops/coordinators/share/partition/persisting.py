"""The interface between a share partition and the persister, which keeps its state at the share coordinator.

Sources: Persister, PartitionAllData, PartitionStateBatchData, SharePartition (maybeInitialize, writeShareGroupState, fetchPersisterError).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share.batches import StateBatch
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.persister.persister import Persister
from kops.errors import ApiError, KopsError
from kops.protocol.errors import by_code
from kops.protocol.messages import read_share_group_state_request as reading
from kops.protocol.messages import write_share_group_state_request as writing

if TYPE_CHECKING:
    from kops.protocol.messages.read_share_group_state_response import ReadShareGroupStateResponse
    from kops.protocol.messages.write_share_group_state_response import WriteShareGroupStateResponse

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
    """The persisted state of a share partition. A start offset of -1 means that the group has not begun to read it."""

    state_epoch: int
    start_offset: int
    batches: Sequence[StateBatch] = ()


class StateWrite(NamedTuple):
    """The state to persist."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]


class PartitionPersister(Protocol):
    """Reads and writes the state of one share partition. Promises fail with the ApiError of the share coordinator's answer."""

    def read_state(self, key: SharePartitionKey, leader_epoch: int) -> Promise[PersistedState]:
        """Read the persisted state."""

    def write_state(self, key: SharePartitionKey, write: StateWrite) -> Promise[None]:
        """Write batches and the start offset."""


class SinglePartitions:
    """A PartitionPersister that sends requests for one partition at a time to a Persister."""

    def __init__(self, persister: Persister) -> None:
        self._persister = persister

    def read_state(self, key: SharePartitionKey, leader_epoch: int) -> Promise[PersistedState]:
        """See PartitionPersister."""
        topic = reading.ReadStateData(key.topic_id, [reading.PartitionData(key.partition, leader_epoch)])
        response = self._persister.read_state(reading.ReadShareGroupStateRequest(key.group_id, [topic]))

        def state(answer: ReadShareGroupStateResponse) -> PersistedState:
            found = _only_result(key, answer, "initialize the share partition")
            batches = [
                StateBatch(each.first_offset, each.last_offset, each.delivery_count, each.delivery_state) for each in found.state_batches
            ]
            return PersistedState(found.state_epoch, found.start_offset, batches)

        return response.then(state)

    def write_state(self, key: SharePartitionKey, write: StateWrite) -> Promise[None]:
        """See PartitionPersister."""
        data = writing.PartitionData(
            partition=key.partition,
            state_epoch=write.state_epoch,
            leader_epoch=write.leader_epoch,
            start_offset=write.start_offset,
            delivery_complete_count=write.delivery_complete_count,
            state_batches=[writing.StateBatch(each.first_offset, each.last_offset, *reversed(each.delivery)) for each in write.batches],
        )
        topic = writing.WriteStateData(key.topic_id, [data])
        response = self._persister.write_state(writing.WriteShareGroupStateRequest(key.group_id, [topic]))

        def written(answer: WriteShareGroupStateResponse) -> None:
            _only_result(key, answer, "write the share group state for share partition")

        return response.then(written)


def _only_result(key: SharePartitionKey, response: Any, action: str) -> Any:
    """Return the partition's result. Raises its ApiError, or KopsError if the response does not have exactly one result."""
    results = response.results
    if len(results) != 1 or results[0].topic_id != key.topic_id or [each.partition for each in results[0].partitions] != [key.partition]:
        raise KopsError(f"Failed to {action} {key.coordinator_key}")
    found = results[0].partitions[0]
    if found.error_code:
        raise ApiError(by_code(found.error_code).name, found.error_message or "")
    return found


def client_error(error: ApiError) -> ApiError:
    """Convert the share coordinator's error into the error for a consumer."""
    if error.name in _HIDDEN:
        return ApiError("UNKNOWN_SERVER_ERROR", "Unable to complete operation due to server error.")
    return ApiError(_RENAMED.get(error.name, "UNKNOWN_SERVER_ERROR"), error.message)
