"""Heartbeats of classic and consumer groups (from Kafka's GroupCoordinatorService).

They are apart from the other requests because they are by far the most: this module is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kops.broker.coordinators.errors import answering_errors
from kops.broker.coordinators.heartbeat_checks import check_consumer_heartbeat
from kops.coordinators.groups.config import GroupCoordinatorConfig
from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.shard.shard import GroupCoordinatorShard
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.runtime import CoordinatorRuntime
from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kops.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from kops.protocol.messages.heartbeat_request import HeartbeatRequest
from kops.protocol.messages.heartbeat_response import HeartbeatResponse
from kops.records.log_offsets import TopicPartition

_LOADING: Final = "COORDINATOR_LOAD_IN_PROGRESS"


class Heartbeats:
    """Passes heartbeats to the shard of the group. `key_of` returns the shard's key for a group's id. The promises never fail."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupCoordinatorShard],
        config: GroupCoordinatorConfig,
        key_of: Callable[[str], TopicPartition],
    ) -> None:
        self._runtime = runtime
        self._assignors = config.group_consumer_assignors
        self._key_of = key_of

    def classic(self, context: RequestContext, request: HeartbeatRequest) -> Promise[HeartbeatResponse]:
        """Heartbeat. While the group is loading, members get no error."""
        if not request.group_id:
            return Promise.of(HeartbeatResponse(error_code=by_name("INVALID_GROUP_ID").code))
        name = "classic-group-heartbeat"
        promise = self._runtime.schedule_write_operation(
            name, self._key_of(request.group_id), lambda shard: shard.classic_group_heartbeat(context, request)
        )
        return answering_errors(name, promise, _classic_failure)

    def consumer(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Promise[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat."""
        try:
            check_consumer_heartbeat(request, context.api_version, self._assignors)
        except ApiError as error:
            return Promise.of(_consumer_failure(error.name, error.message))
        name = "consumer-group-heartbeat"
        promise = self._runtime.schedule_write_operation(
            name, self._key_of(request.group_id), lambda shard: shard.consumer_group_heartbeat(context, request)
        )
        return answering_errors(name, promise, _consumer_failure)


def _classic_failure(error: str, _: str | None) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=0 if error == _LOADING else by_name(error).code)


def _consumer_failure(error: str, text: str | None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=by_name(error).code, error_message=text)
