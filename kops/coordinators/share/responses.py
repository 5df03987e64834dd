"""The responses of the five APIs of share state. All have results by topic, which hold results by partition.

Sources: InitializeShareGroupStateResponse, ReadShareGroupStateResponse, WriteShareGroupStateResponse, DeleteShareGroupStateResponse,
ReadShareGroupStateSummaryResponse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from kops.protocol import errors
from kops.protocol.messages import delete_share_group_state_response as deleting
from kops.protocol.messages import initialize_share_group_state_response as initializing
from kops.protocol.messages import read_share_group_state_response as reading
from kops.protocol.messages import read_share_group_state_summary_response as summing
from kops.protocol.messages import write_share_group_state_response as writing

R = TypeVar("R")
# Texts that clients see.
MESSAGES: Final = {
    "UNKNOWN_SERVER_ERROR": "The server experienced an unexpected error when processing the request.",
    "UNKNOWN_TOPIC_OR_PARTITION": "This server does not host this topic-partition.",
    "NOT_LEADER_OR_FOLLOWER": (
        "For requests intended only for the leader, this error indicates that the broker is not the current leader. "
        "For requests intended for any replica, this error indicates that the broker is not a replica of the topic partition."
    ),
    "REQUEST_TIMED_OUT": "The request timed out.",
    "NETWORK_EXCEPTION": "The server disconnected before a response was received.",
    "COORDINATOR_LOAD_IN_PROGRESS": "The coordinator is loading and hence can't process requests.",
    "COORDINATOR_NOT_AVAILABLE": "The coordinator is not available.",
    "NOT_COORDINATOR": "This is not the correct coordinator.",
    "NOT_ENOUGH_REPLICAS": "Messages are rejected since there are fewer in-sync replicas than required.",
    "INVALID_GROUP_ID": "The group id is invalid.",
    "UNSUPPORTED_VERSION": "The version of API is not supported.",
    "KAFKA_STORAGE_ERROR": "Disk error when trying to access log file on the disk.",
    "GROUP_ID_NOT_FOUND": "The group id does not exist.",
    "NON_EMPTY_GROUP": "The group is not empty.",
    "FENCED_LEADER_EPOCH": "The leader epoch in the request is older than the epoch on the broker.",
    "FENCED_STATE_EPOCH": "The share coordinator rejected the request because the share-group state epoch did not match.",
}


def message_of(name: str) -> str:
    """Return Kafka's message for an error, or a description of the error if Kafka's message is not used."""
    return MESSAGES.get(name) or errors.by_name(name).words


@dataclass(frozen=True, slots=True)
class StateApi(Generic[R]):
    """One of the five APIs: its verb in messages, and the classes of its response."""

    verb: str
    response: Callable[[list[Any]], R]
    topic_result: Callable[[bytes, list[Any]], Any]
    partition_result: Callable[..., Any]

    def single(self, topic_id: bytes, result: object) -> R:
        """Return a response with the result of one partition."""
        return self.response([self.topic_result(topic_id, [result])])

    def success(self, topic_id: bytes, partition: int, **values: object) -> R:
        """Return a response for one successful partition."""
        return self.single(topic_id, self.partition_result(partition, **values))

    def error_result(self, partition: int, name: str, message: str | None = None) -> Any:
        """Return a partition's result with an error. The default message is Kafka's message for the error."""
        return self.partition_result(partition, errors.by_name(name).code, message_of(name) if message is None else message)

    def error(self, topic_id: bytes, partition: int, name: str, message: str | None = None) -> R:
        """Return a response with the error of one partition."""
        return self.single(topic_id, self.error_result(partition, name, message))

    def of_results(self, results: Mapping[bytes, Sequence[Any]]) -> R:
        """Return a response with the results of several topics."""
        return self.response([self.topic_result(topic_id, list(partitions)) for topic_id, partitions in results.items()])


INITIALIZE: Final = StateApi(
    "initialize share group state",
    initializing.InitializeShareGroupStateResponse,
    initializing.InitializeStateResult,
    initializing.PartitionResult,
)
READ: Final = StateApi("read share group state", reading.ReadShareGroupStateResponse, reading.ReadStateResult, reading.PartitionResult)
WRITE: Final = StateApi("write share group state", writing.WriteShareGroupStateResponse, writing.WriteStateResult, writing.PartitionResult)
DELETE: Final = StateApi(
    "delete share group state", deleting.DeleteShareGroupStateResponse, deleting.DeleteStateResult, deleting.PartitionResult
)
SUMMARY: Final = StateApi(
    "read share group state summary",
    summing.ReadShareGroupStateSummaryResponse,
    summing.ReadStateSummaryResult,
    summing.PartitionResult,
)
