"""The interface of a persister. Source: Persister, its parameters and results, DefaultStatePersister.validate.

Kafka has separate classes for parameters and results. They have the same fields as the share coordinator's requests and responses, so
kops uses these messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kops.coordinators.runtime.promise import Promise
from kops.errors import KopsError
from kops.protocol.json_text import uuid_text

if TYPE_CHECKING:
    from kops.protocol.messages.delete_share_group_state_request import DeleteShareGroupStateRequest
    from kops.protocol.messages.delete_share_group_state_response import DeleteShareGroupStateResponse
    from kops.protocol.messages.initialize_share_group_state_request import InitializeShareGroupStateRequest
    from kops.protocol.messages.initialize_share_group_state_response import InitializeShareGroupStateResponse
    from kops.protocol.messages.read_share_group_state_request import ReadShareGroupStateRequest
    from kops.protocol.messages.read_share_group_state_response import ReadShareGroupStateResponse
    from kops.protocol.messages.read_share_group_state_summary_request import ReadShareGroupStateSummaryRequest
    from kops.protocol.messages.read_share_group_state_summary_response import ReadShareGroupStateSummaryResponse
    from kops.protocol.messages.write_share_group_state_request import WriteShareGroupStateRequest
    from kops.protocol.messages.write_share_group_state_response import WriteShareGroupStateResponse


class Persister(Protocol):
    """Keeps the state of share partitions.

    A response has a result for every partition of the request. If all attempts for a partition failed, its result has an error. A promise
    fails only if the request is invalid (see `check_request`) or the persister is closed.
    """

    def initialize_state(self, request: InitializeShareGroupStateRequest) -> Promise[InitializeShareGroupStateResponse]:
        """Initialize the state of partitions. Used by the group coordinator."""

    def read_state(self, request: ReadShareGroupStateRequest) -> Promise[ReadShareGroupStateResponse]:
        """Read the delivery state. Used by a partition's leader, whose epoch fences earlier leaders."""

    def write_state(self, request: WriteShareGroupStateRequest) -> Promise[WriteShareGroupStateResponse]:
        """Write the delivery state. Used by a partition's leader."""

    def delete_state(self, request: DeleteShareGroupStateRequest) -> Promise[DeleteShareGroupStateResponse]:
        """Delete the state of partitions. Used by the group coordinator."""

    def read_summary(self, request: ReadShareGroupStateSummaryRequest) -> Promise[ReadShareGroupStateSummaryResponse]:
        """Read start offsets and counts. Used by the group coordinator."""


def check_request(request: Any, name: str) -> None:
    """Raise KopsError if a request has no group, no topics, a topic without partitions, or a negative partition.

    `name` is Kafka's name for the request, such as `Read share group`.
    """
    prefix = f"{name} parameters"
    if not request.group_id:
        raise KopsError(f"{prefix} groupId cannot be null or empty.")
    if not request.topics:
        raise KopsError(f"{prefix} topics data cannot be null or empty.")
    for topic in request.topics:
        if not topic.partitions:
            raise KopsError(f"{prefix} partitions cannot be null or empty.")
        for each in topic.partitions:
            if each.partition < 0:
                raise KopsError(f"{prefix} has invalid partitionId - {request.group_id} {uuid_text(topic.topic_id)} {each.partition}")
