"""A persister that stores nothing: a share group starts again when a partition gets a new leader. Source: NoOpStatePersister."""

from __future__ import annotations

from typing import Any, Final

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share import responses
from kops.coordinators.share.responses import StateApi
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

_UNINITIALIZED: Final = -1


class NoOpPersister:
    """See Persister. Every request succeeds at once."""

    def initialize_state(self, request: InitializeShareGroupStateRequest) -> Promise[InitializeShareGroupStateResponse]:
        """See Persister."""
        return _done(responses.INITIALIZE, request)

    def read_state(self, request: ReadShareGroupStateRequest) -> Promise[ReadShareGroupStateResponse]:
        """See Persister."""
        return _done(responses.READ, request, start_offset=_UNINITIALIZED)

    def write_state(self, request: WriteShareGroupStateRequest) -> Promise[WriteShareGroupStateResponse]:
        """See Persister."""
        return _done(responses.WRITE, request)

    def delete_state(self, request: DeleteShareGroupStateRequest) -> Promise[DeleteShareGroupStateResponse]:
        """See Persister."""
        return _done(responses.DELETE, request)

    def read_summary(self, request: ReadShareGroupStateSummaryRequest) -> Promise[ReadShareGroupStateSummaryResponse]:
        """See Persister."""
        return _done(responses.SUMMARY, request, start_offset=_UNINITIALIZED, delivery_complete_count=_UNINITIALIZED)

    def close(self) -> None:
        """Do nothing."""


def _done(api: StateApi[Any], request: Any, **values: int) -> Promise[Any]:
    results = {topic.topic_id: [api.partition_result(each.partition, **values) for each in topic.partitions] for topic in request.topics}
    return Promise.of(api.of_results(results))
