"""FindCoordinator, versions 0 to 6: which broker coordinates a group, a transactional id or a share partition (Kafka's
KafkaApis.handleFindCoordinatorRequest, getCoordinator; KIP-98, KIP-699, KIP-932). The topic of the coordinators is created on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kops.config.values.java_hash import string_hash
from kops.errors import ApiError
from kops.metadata.image.metadata_cache import NO_NODE, BrokerNode
from kops.protocol.errors import by_name
from kops.protocol.messages import FindCoordinatorResponse
from kops.protocol.messages.find_coordinator_response import Coordinator

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages.find_coordinator_request import FindCoordinatorRequest

_TOPICS: Final = {
    0: ("__consumer_offsets", "offsets.topic.num.partitions"),
    1: ("__transaction_state", "transaction.state.log.num.partitions"),
    2: ("__share_group_state", "share.coordinator.state.topic.num.partitions"),
}
"""By the type of the key: the coordinators' topic, and the setting for its number of partitions."""
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
    if key_type not in _TOPICS:
        raise ApiError("INVALID_REQUEST", f"Unknown coordinator type id {key_type}")
    if key_type == _SHARE and (context.request.version < _FIRST_WITH_SHARE or not _is_share_key(key)):
        return "INVALID_REQUEST", NO_NODE
    topic, count_key = _TOPICS[key_type]
    count = parts.cache.partition_count(topic)
    if count is None:
        parts.auto_topics.create([topic], context)
        return "COORDINATOR_NOT_AVAILABLE", NO_NODE
    registered = parts.cache.partition(topic, _partition(key, count or int(parts.config[count_key])))
    node = None if registered is None else parts.cache.alive_broker(registered.leader, context.listener_name)
    return ("COORDINATOR_NOT_AVAILABLE", NO_NODE) if node is None else ("NONE", node)


def _partition(key: str, count: int) -> int:
    code = string_hash(key)
    code = code - 2**32 if code >= 2**31 else code
    return (0 if code == -(2**31) else abs(code)) % count


def _is_share_key(key: str) -> bool:
    """Whether a key has a group, a topic id and a partition (SharePartitionKey.validate)."""
    from kops.coordinators.share.key import SharePartitionKey

    try:
        SharePartitionKey.parse(key)
    except ValueError:
        return False
    return True
