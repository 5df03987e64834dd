"""Requests for a group's coordinator and its committed offsets, and the decoding of their answers.

Source: Kafka's ConsumerCoordinator (OffsetCommitResponseHandler, OffsetFetchResponseHandler), AbstractCoordinator
(sendFindCoordinatorRequest), CoordinatorKey.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kops.client.client import Client, To, check
from kops.client.node import Node
from kops.client.topics import error_of
from kops.errors import ApiError
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.protocol.declaration import Message
    from kops.protocol.messages import OffsetCommitResponse, OffsetFetchResponse

GROUP, TRANSACTION, SHARE = range(3)
# With topics by name, and coordinators and groups in lists (Kafka 3.0 and later).
FIND_VERSIONS: Final = range(4, 7)
COMMIT_VERSIONS: Final = range(2, 10)
FETCH_VERSIONS: Final = range(8, 10)
_LAST_ID: Final = 0x7FFF_FFFF


def find_coordinator(client: Client, key: str, kind: int = GROUP, *, timeout_ms: int | None = None) -> Node:
    """Ask any broker for the coordinator of a group or a transactional id. Raises ApiError, UnreachableError.

    The node's id differs from the broker's, so it gets its own connection: requests to a coordinator must not wait for a fetch.
    """
    from kops.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

    def handle(response: Message) -> Node:
        assert isinstance(response, FindCoordinatorResponse)
        (found,) = response.coordinators
        check(found.error_code, found.error_message)
        return Node(_LAST_ID - found.node_id, found.host, found.port)

    def build(_: int) -> Message:
        return FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])

    return client.call("find coordinator", To.ANY, build, handle, timeout_ms=timeout_ms, versions=FIND_VERSIONS)


def commit_request(
    group_id: str, offsets: Mapping[TopicPartition, int], *, generation_id: int = -1, member_id: str = "", instance_id: str | None = None
) -> Message:
    """Build a request that commits the offsets of the next records."""
    from kops.protocol.messages import OffsetCommitRequest
    from kops.protocol.messages.offset_commit_request import OffsetCommitRequestPartition, OffsetCommitRequestTopic

    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for key, offset in offsets.items():
        topics.setdefault(key.topic, []).append(OffsetCommitRequestPartition(key.partition, offset, -1, ""))
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


def commit_outcomes(response: OffsetCommitResponse) -> dict[TopicPartition, ApiError | None]:
    """Return the error of each partition, or None if its offset was committed."""
    return {
        TopicPartition(topic.name, one.partition_index): error_of(one.error_code) for topic in response.topics for one in topic.partitions
    }


def fetch_request(group_id: str, keys: Iterable[TopicPartition]) -> Message:
    """Build a request for committed offsets that no open transaction can change."""
    from kops.protocol.messages import OffsetFetchRequest
    from kops.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics

    topics: dict[str, list[int]] = {}
    for key in keys:
        topics.setdefault(key.topic, []).append(key.partition)
    wanted = [OffsetFetchRequestTopics(name=name, partition_indexes=partitions) for name, partitions in topics.items()]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id, topics=wanted)], require_stable=True)


def fetched_offsets(response: OffsetFetchResponse) -> dict[TopicPartition, int]:
    """Return the committed offsets, without partitions that have none. Raises ApiError (UNSTABLE_OFFSET_COMMIT: retry)."""
    (group,) = response.groups
    check(group.error_code)
    found = {}
    for topic in group.topics:
        for one in topic.partitions:
            error = error_of(one.error_code)
            if error is not None:
                raise ApiError(error.name, f"{topic.name}-{one.partition_index}: {error}")
            if one.committed_offset >= 0:
                found[TopicPartition(topic.name, one.partition_index)] = one.committed_offset
    return found
