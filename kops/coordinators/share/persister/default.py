"""The persister that uses the share coordinator: it makes one call for each share partition and joins the results.

Source: DefaultStatePersister.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kops.config.values.java_hash import hash_map_order
from kops.coordinators.runtime.promise import Promise, all_of
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.persister.calls import BACKOFF_MAX_MS, BACKOFF_MS, DELETE, INITIALIZE, READ, SUMMARY, WRITE, Call, Rpc
from kops.coordinators.share.persister.manager import StateManager
from kops.coordinators.share.persister.persister import check_request
from kops.coordinators.share.requests import joined
from kops.errors import KopsError
from kops.protocol.connections.backoff import ExponentialBackoff
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


class DefaultPersister:
    """See Persister. `draw()` returns random numbers from 0 to below 1, for the back-off."""

    def __init__(self, manager: StateManager, draw: Callable[[], float]) -> None:
        self._manager = manager
        self._backoff = ExponentialBackoff(BACKOFF_MS, BACKOFF_MAX_MS, draw)

    def initialize_state(self, request: InitializeShareGroupStateRequest) -> Promise[InitializeShareGroupStateResponse]:
        """See Persister."""
        return self._ask(INITIALIZE, request)

    def read_state(self, request: ReadShareGroupStateRequest) -> Promise[ReadShareGroupStateResponse]:
        """See Persister."""
        return self._ask(READ, request)

    def write_state(self, request: WriteShareGroupStateRequest) -> Promise[WriteShareGroupStateResponse]:
        """See Persister."""
        return self._ask(WRITE, request)

    def delete_state(self, request: DeleteShareGroupStateRequest) -> Promise[DeleteShareGroupStateResponse]:
        """See Persister."""
        return self._ask(DELETE, request)

    def read_summary(self, request: ReadShareGroupStateSummaryRequest) -> Promise[ReadShareGroupStateSummaryResponse]:
        """See Persister."""
        return self._ask(SUMMARY, request)

    def _ask(self, rpc: Rpc, request: Any) -> Promise[Any]:
        try:
            check_request(request, rpc.title)
        except KopsError as error:
            return Promise.failed(error)
        calls: list[Call] = []
        promises: dict[SharePartitionKey, Promise[Any]] = {}
        for topic in request.topics:
            for data in topic.partitions:
                key = SharePartitionKey(request.group_id, topic.topic_id, data.partition)
                # A partition that is named twice gets two calls. The first response counts.
                calls.append(Call(rpc, key, data, self._backoff, promises.setdefault(key, Promise())))
        whole = all_of(promises.values())
        for call in calls:
            self._manager.enqueue(call)
        return whole.then(lambda _: joined(rpc.api, {key: promise.result() for key, promise in promises.items()}, hash_map_order))
