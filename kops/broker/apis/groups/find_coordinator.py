"""FindCoordinator, versions 0 to 6: which broker coordinates a group, a transactional id or a share partition (Kafka's
KafkaApis.handleFindCoordinatorRequest, getCoordinator; KIP-98, KIP-699, KIP-932). The topic of the coordinators is created on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kops.errors import ApiError
from kops.metadata.image.metadata_cache import NO_NODE, BrokerNode
from kops.protocol.errors import by_name
from kops.protocol.messages import FindCoordinatorResponse
from kops.protocol.messages.find_coordinator_response import Coordinator

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages.find_coordinator_request import FindCoordinatorRequest

_TOPICS: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""The coordinators' topic by the type of the key."""
_TRANSACTION: Final = 1
_SHARE: Final = 2
_FIRST_WITH_MANY_KEYS: Final = 4
_FIRST_WITH_SHARE: Final = 6


def handle_find_coordinator(parts: BrokerParts, context: RequestContext) -> None:
    """Answer with the coordinator of each key. Raises ApiError INVALID_REQUEST for an unknown type, and before version 4 any error."""
    request = cast("FindCoordinatorRequest", context.request.message)
    version = context.request.version
    if version < _FIRST_WITH_MANY_KEYS:
        error, node = _find(parts, context, request.key_type, request.key)
        if error != "NONE":
            raise ApiError(error)
        context.respond(FindCoordinatorResponse(error_message="NONE", node_id=node.id, host=node.host, port=node.port))
        return
    found = [(key, *_find(parts, context, request.key_type, key)) for key in request.coordinator_keys]
    context.respond(
        FindCoordinatorResponse(
            coordinators=[Coordinator(key, node.id, node.host, node.port, by_name(error).code) for key, error, node in found]
        )
    )


def _find(parts: BrokerParts, context: RequestContext, key_type: int, key: str) -> tuple[str, BrokerNode]:
    """Return (error, node)."""
    if key_type not in range(len(_TOPICS)):
        raise ApiError("INVALID_REQUEST", f"Unknown coordinator type received: {key_type}")
    if key_type == _SHARE and context.request.version < _FIRST_WITH_SHARE:
        return "INVALID_REQUEST", NO_NODE
    topic, number = _TOPICS[key_type], _partition(parts, key_type, key)
    if number is None:
        return "INVALID_REQUEST", NO_NODE
    if parts.cache.partition_count(topic) is None:
        parts.auto_topics.create([topic], context)
        return "COORDINATOR_NOT_AVAILABLE", NO_NODE
    registered = parts.cache.partition(topic, number)
    node = None if registered is None else parts.cache.alive_broker(registered.leader, context.listener_name)
    return ("COORDINATOR_NOT_AVAILABLE", NO_NODE) if node is None else ("NONE", node)


def _partition(parts: BrokerParts, key_type: int, key: str) -> int | None:
    """Return the partition of a key, or None for an invalid key of a share partition.

    Coordinators count the partitions of their topic when the broker starts, so all must be asked, not the metadata.
    """
    if key_type == _TRANSACTION:
        return parts.transactions.partition_for(key)
    if key_type != _SHARE:
        return parts.groups.partition_for(key)
    from kops.coordinators.share.key import SharePartitionKey

    try:
        parsed = SharePartitionKey.parse(key)
    except ValueError:
        return None
    return parts.share_state.coordinator.partition_for(parsed)
