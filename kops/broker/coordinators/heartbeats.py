"""Heartbeats of classic and consumer groups (from Kafka's GroupCoordinatorService).

They are apart from the other requests because they are by far the most: this module is compiled. Nearly all of them change nothing but the
end of the member's session. If nothing else waits in the shard, these are answered without an event of the runtime.
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
_KEPT: Final = HeartbeatResponse()
_KEPT_KEYS: Final = 10_000
_LONGEST_KEPT: Final = 256


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
        self._keys: dict[str, TopicPartition] = {}

    def kept_classic(self, request: HeartbeatRequest) -> HeartbeatResponse | None:
        """Answer a Heartbeat that changes nothing. Returns None, and does nothing, if it is another one: `classic` answers all."""
        if not request.group_id:
            return None
        settled = self._runtime.settled_shard(self._key(request.group_id))
        return _KEPT if settled is not None and settled.keep_classic_member(request) else None

    def classic(self, context: RequestContext, request: HeartbeatRequest) -> Promise[HeartbeatResponse]:
        """Heartbeat. While the group is loading, members get no error."""
        if not request.group_id:
            return Promise.of(HeartbeatResponse(error_code=by_name("INVALID_GROUP_ID").code))
        name = "classic-group-heartbeat"
        promise = self._runtime.schedule_write_operation(
            name, self._key(request.group_id), lambda shard: shard.classic_group_heartbeat(context, request)
        )
        return answering_errors(name, promise, _classic_failure)

    def kept_consumer(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | None:
        """Answer a ConsumerGroupHeartbeat that changes nothing. Returns None, and does nothing, if it is another one."""
        try:
            check_consumer_heartbeat(request, context.api_version, self._assignors)
        except ApiError:
            return None  # `consumer` answers with the error.
        settled = self._runtime.settled_shard(self._key(request.group_id))
        return None if settled is None else settled.keep_consumer_member(context, request)

    def consumer(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Promise[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat."""
        try:
            check_consumer_heartbeat(request, context.api_version, self._assignors)
        except ApiError as error:
            return Promise.of(_consumer_failure(error.name, error.message))
        name = "consumer-group-heartbeat"
        promise = self._runtime.schedule_write_operation(
            name, self._key(request.group_id), lambda shard: shard.consumer_group_heartbeat(context, request)
        )
        return answering_errors(name, promise, _consumer_failure)

    def _key(self, group_id: str) -> TopicPartition:
        key = self._keys.get(group_id)
        if key is None:
            key = self._key_of(group_id)
            if len(group_id) <= _LONGEST_KEPT:
                if len(self._keys) >= _KEPT_KEYS:
                    self._keys.clear()
                self._keys[group_id] = key
        return key


def _classic_failure(error: str, _: str | None) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=0 if error == _LOADING else by_name(error).code)


def _consumer_failure(error: str, text: str | None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=by_name(error).code, error_message=text)
