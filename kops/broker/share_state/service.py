"""Passes requests of share state to the shards of their partitions, and deletes old records (Kafka's ShareCoordinatorService)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, TypeVar

from kops.broker.coordinators.errors import operation_error
from kops.broker.replicas.hosted_partitions import error_name
from kops.coordinators.runtime.promise import Promise, all_of
from kops.coordinators.runtime.result import CoordinatorResult
from kops.coordinators.runtime.runtime import CoordinatorRuntime
from kops.coordinators.share import responses
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.requests import failed, is_empty, joined, not_available, single_requests
from kops.coordinators.share.responses import StateApi
from kops.coordinators.share.shard import ShareCoordinatorShard
from kops.errors import ApiError, KopsError
from kops.protocol.declaration import Message
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
from kops.records.log_offsets import TopicPartition

log = logging.getLogger(__name__)
R = TypeVar("R")

SHARE_TOPIC: Final = "__share_group_state"
_MOVED: Final = ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR")


class ShareCoordinatorService:
    """Handles the requests of share state. `partition_for` returns the partition of a key; `delete_records(partition, offset)` trims a
    log."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[ShareCoordinatorShard],
        partition_for: Callable[[SharePartitionKey], int],
        delete_records: Callable[[TopicPartition, int], Promise[None]],
    ) -> None:
        self.runtime = runtime
        self._partition_for = partition_for
        self._delete_records = delete_records
        self._last_pruned: dict[TopicPartition, int] = {}

    def initialize_state(self, request: InitializeShareGroupStateRequest) -> Promise[InitializeShareGroupStateResponse]:
        """InitializeShareGroupState."""
        return self._written("initialize-share-group-state", responses.INITIALIZE, request, ShareCoordinatorShard.initialize_state)

    def read_state(self, request: ReadShareGroupStateRequest) -> Promise[ReadShareGroupStateResponse]:
        """ReadShareGroupState. It also writes the leader epoch of the reader."""
        return self._written("read-update-leader-epoch-state", responses.READ, request, ShareCoordinatorShard.read_state)

    def write_state(self, request: WriteShareGroupStateRequest) -> Promise[WriteShareGroupStateResponse]:
        """WriteShareGroupState."""
        return self._written("write-share-group-state", responses.WRITE, request, ShareCoordinatorShard.write_state)

    def delete_state(self, request: DeleteShareGroupStateRequest) -> Promise[DeleteShareGroupStateResponse]:
        """DeleteShareGroupState."""
        return self._written("delete-share-group-state", responses.DELETE, request, ShareCoordinatorShard.delete_state)

    def read_summary(self, request: ReadShareGroupStateSummaryRequest) -> Promise[ReadShareGroupStateSummaryResponse]:
        """ReadShareGroupStateSummary. It runs as a write operation, so it reads uncommitted state and waits for its commit."""
        return self._written("read-share-group-state-summary", responses.SUMMARY, request, ShareCoordinatorShard.read_state_summary)

    def _written(
        self, name: str, api: StateApi[R], request: Any, operation: Callable[[ShareCoordinatorShard, Any], CoordinatorResult[R]]
    ) -> Promise[R]:
        if is_empty(request, check_partitions=api is not responses.INITIALIZE):
            log.error("%s: a request without group, topics or partitions", name)
            return Promise.of(api.response([]))
        found: dict[SharePartitionKey, Promise[R]] = {}
        for key, single in single_requests(request):
            partition = TopicPartition(SHARE_TOPIC, self._partition_for(key))
            promise = self.runtime.schedule_write_operation(name, partition, partial(_run, operation, single))
            found[key] = promise.or_else(partial(_error_response, name, api, key))
        return all_of(found.values()).then(lambda _: joined(api, {key: promise.result() for key, promise in found.items()}))

    # from the broker --------------------------------------------------------------------------------------------------------------

    def resigned(self, key: TopicPartition, epoch: int | None) -> None:
        """Unload a partition that another broker leads."""
        self._last_pruned.pop(key, None)
        self.runtime.schedule_unload_operation(key, epoch)

    def on_topics_deleted(self, topic_ids: Collection[bytes]) -> None:
        """Delete the state of deleted topics."""

        def tell(_: object, error: KopsError | None) -> None:
            if error is not None:
                log.error("Received error while trying to cleanup deleted topics: %s", error)

        ids = frozenset(topic_ids)
        for promise in self.runtime.schedule_write_all_operation("on-topics-deleted", lambda shard: shard.clean_up_deleted_topics(ids)):
            promise.when_done(tell)

    def snapshot_cold_partitions(self) -> Promise[None]:
        """Write snapshots of states that have not been written for a long time, so that older records can be deleted."""
        found = self.runtime.schedule_write_all_operation("snapshot-cold-partitions", lambda shard: shard.snapshot_cold_partitions())
        return all_of(found)

    def prune(self) -> Promise[None]:
        """Delete the redundant records of all partitions."""
        return all_of([self._prune(key) for key in self.runtime.active_coordinators])

    def _prune(self, key: TopicPartition) -> Promise[None]:
        pruned: Promise[None] = Promise()

        def found(offset: int | None, error: KopsError | None) -> None:
            if error is not None:
                if error_name(error) in _MOVED:
                    pruned.complete(None)
                else:
                    log.error("Last redundant offset lookup for %s-%d threw an error: %s", *key, error)
                    pruned.fail(error)
            elif offset is None or self._last_pruned.get(key) == offset:
                pruned.complete(None)
            else:
                self._delete_records(key, offset).when_done(lambda _, error: deleted(offset, error))

        def deleted(offset: int, error: KopsError | None) -> None:
            if error is not None:
                log.error("Error while deleting records in %s-%d till offset %d: %s", *key, offset, error)
                pruned.fail(error)
                return
            pruned.complete(None)
            self._last_pruned[key] = offset

        self.runtime.schedule_write_operation("write-state-record-prune", key, lambda shard: shard.last_redundant_offset()).when_done(found)
        return pruned


_SERVED: Final[dict[type[Message], tuple[StateApi[Any], Callable[[ShareCoordinatorService, Any], Promise[Any]]]]] = {
    InitializeShareGroupStateRequest: (responses.INITIALIZE, ShareCoordinatorService.initialize_state),
    ReadShareGroupStateRequest: (responses.READ, ShareCoordinatorService.read_state),
    WriteShareGroupStateRequest: (responses.WRITE, ShareCoordinatorService.write_state),
    DeleteShareGroupStateRequest: (responses.DELETE, ShareCoordinatorService.delete_state),
    ReadShareGroupStateSummaryRequest: (responses.SUMMARY, ShareCoordinatorService.read_summary),
}


def answer_state_request(service: ShareCoordinatorService | None, request: Any) -> Promise[Any]:
    """Handle one of the five requests. Without a service, answer that the coordinator is not available."""
    api, answer = _SERVED[type(request)]
    if service is not None:
        return answer(service, request)
    is_checked_first = api in (responses.READ, responses.WRITE)
    return Promise.of(api.response([]) if is_checked_first and is_empty(request, check_partitions=True) else not_available(api, request))


def _run(
    operation: Callable[[ShareCoordinatorShard, Any], CoordinatorResult[R]], single: Any, shard: ShareCoordinatorShard
) -> CoordinatorResult[R]:
    return operation(shard, single)


def _error_response(name: str, api: StateApi[R], key: SharePartitionKey, error: KopsError) -> R:
    seen = error if isinstance(error, ApiError) else ApiError("UNKNOWN_SERVER_ERROR", str(error))
    return failed(api, key, seen, operation_error(name, error)[0])
