"""Splits a request for many share partitions into one request for each, and joins the results into one response.

Source: ShareCoordinatorService. Topics and partitions in the response are in the order of Java's hash maps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from kops.config.values.java_hash import hash_map_order, put_order
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.responses import StateApi, message_of
from kops.errors import ApiError
from kops.protocol.declaration import Message

M = TypeVar("M", bound=Message)
R = TypeVar("R")
NOT_AVAILABLE = "Share coordinator is not available."


def is_empty(request: Any, *, check_partitions: bool) -> bool:
    """Whether a request gets an empty response: it has no group, no topics, or (except for Initialize) a topic without partitions."""
    return not request.group_id or not request.topics or (check_partitions and not all(topic.partitions for topic in request.topics))


def not_available(api: StateApi[R], request: Any) -> R:
    """Return the response for a coordinator that is not running."""
    message = "COORDINATOR_NOT_AVAILABLE", NOT_AVAILABLE
    return api.response(
        [
            api.topic_result(topic.topic_id, [api.error_result(each.partition, *message) for each in topic.partitions])
            for topic in request.topics
        ]
    )


def single_requests(request: M) -> Iterator[tuple[SharePartitionKey, M]]:
    """Yield one request for each partition. If a partition is named twice, both requests run, and the last result counts."""
    asked: Any = request
    for topic in asked.topics:
        for data in topic.partitions:
            single_topic = copy.copy(topic)
            single_topic.partitions = [data]
            single = copy.copy(asked)
            single.topics = [single_topic]
            yield SharePartitionKey(asked.group_id, topic.topic_id, data.partition), single


def failed(api: StateApi[R], key: SharePartitionKey, error: ApiError, told_as: str | None = None) -> R:
    """Return the response for a partition whose operation failed. `told_as` replaces the error for clients."""
    return api.error(key.topic_id, key.partition, told_as or error.name, f"Unable to {api.verb}: {error.message or message_of(error.name)}")


def joined(
    api: StateApi[R], responses: Mapping[SharePartitionKey, Any], partition_order: Callable[[Iterable[int]], list[int]] = put_order
) -> R:
    """Join the responses for single partitions. `partition_order` is put_order or hash_map_order."""
    by_topic: dict[bytes, dict[int, Any]] = {}
    for key, response in responses.items():
        by_topic.setdefault(key.topic_id, {})[key.partition] = response.results[0].partitions[0]
    ordered = in_hash_order(by_topic)
    return api.of_results(
        {topic_id: [by_topic[topic_id][number] for number in partition_order(by_topic[topic_id])] for topic_id in ordered}
    )


def in_hash_order(topic_ids: Iterable[bytes]) -> list[bytes]:
    """Sort topics like a hash map filled with computeIfAbsent: among equal hash codes the last one comes first."""
    by_hash: dict[int, list[bytes]] = {}
    for topic_id in topic_ids:
        by_hash.setdefault(uuid_hash(topic_id), []).append(topic_id)
    return [topic_id for code in hash_map_order(by_hash) for topic_id in reversed(by_hash[code])]


def uuid_hash(uuid: bytes) -> int:
    """Return Uuid.hashCode as an unsigned 32-bit number."""
    halves = int.from_bytes(uuid[:8], "big") ^ int.from_bytes(uuid[8:], "big")
    return (halves >> 32 ^ halves) & 0xFFFF_FFFF
