"""The offsets of groups: fetch, set, delete.

Source: Kafka's ListConsumerGroupOffsetsHandler, AlterConsumerGroupOffsetsHandler, DeleteConsumerGroupOffsetsHandler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kops.client.client import Client
from kops.client.coordinators.finding import KeyType, by_coordinator
from kops.client.topics import error_of
from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.node import Node
    from kops.protocol.declaration import Message

# Since version 10, topics have ids instead of names.
_WITH_NAMES: Final = 10
_BATCHED: Final = 8
Outcomes = dict[TopicPartition, ApiError | None]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """An offset of a group, with the leader epoch of the record before it, if known. `lag` is reported by brokers for share groups only."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""
    lag: int | None = None


GroupOffsets = dict[TopicPartition, CommittedOffset]


def fetch_offsets(client: Client, group_ids: Iterable[str]) -> dict[str, GroupOffsets | ApiError]:
    """Return all committed offsets of each group. A group that does not exist has none."""
    wanted = list(group_ids)
    found = _fetch_batched(client, wanted)
    old = [group_id for group_id, one in found.items() if isinstance(one, ApiError) and one.name == "UNSUPPORTED_VERSION"]
    for group_id in old:
        found |= _fetch_one(client, group_id)
    return found


def _fetch_batched(client: Client, group_ids: list[str]) -> dict[str, GroupOffsets | ApiError]:
    from kops.protocol.messages import OffsetFetchRequest, OffsetFetchResponse
    from kops.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup

    def handle(_: Node, response: Message) -> dict[str, GroupOffsets | ApiError]:
        assert isinstance(response, OffsetFetchResponse)
        return {one.group_id: error_of(one.error_code) or _offsets(one.topics) for one in response.groups}

    def make(keys: list[str]) -> Message:
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=key, topics=None) for key in keys])

    return by_coordinator(client, "fetch offsets", KeyType.GROUP, group_ids, make, handle, versions=range(_BATCHED, _WITH_NAMES))


def _fetch_one(client: Client, group_id: str) -> dict[str, GroupOffsets | ApiError]:
    from kops.protocol.messages import OffsetFetchRequest, OffsetFetchResponse

    def handle(_: Node, response: Message) -> dict[str, GroupOffsets | ApiError]:
        assert isinstance(response, OffsetFetchResponse)
        return {group_id: error_of(response.error_code) or _offsets(response.topics)}

    request = OffsetFetchRequest(group_id=group_id, topics=None)
    return by_coordinator(client, "fetch offsets", KeyType.GROUP, [group_id], lambda _: request, handle, versions=range(2, _BATCHED))


def _offsets(topics: Iterable[Any]) -> GroupOffsets:
    return {
        TopicPartition(topic.name, one.partition_index): CommittedOffset(
            one.committed_offset, None if one.committed_leader_epoch < 0 else one.committed_leader_epoch, one.metadata or ""
        )
        for topic in topics
        for one in topic.partitions
        if not one.error_code and one.committed_offset >= 0
    }


def commit_offsets(client: Client, group_id: str, offsets: Mapping[TopicPartition, int]) -> Outcomes:
    """Set offsets of a group without members. Retries while the coordinator is not ready."""
    from kops.protocol.messages import OffsetCommitRequest, OffsetCommitResponse
    from kops.protocol.messages.offset_commit_request import OffsetCommitRequestPartition, OffsetCommitRequestTopic

    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for key, offset in offsets.items():
        topics.setdefault(key.topic, []).append(
            OffsetCommitRequestPartition(partition_index=key.partition, committed_offset=offset, committed_metadata="")
        )
    request = OffsetCommitRequest(
        group_id=group_id, topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()]
    )

    def handle(_: Node, response: Message) -> dict[str, Outcomes | ApiError]:
        assert isinstance(response, OffsetCommitResponse)
        return {group_id: _outcomes(response.topics)}

    if not offsets:
        return {}
    found = by_coordinator(client, "commit offsets", KeyType.GROUP, [group_id], lambda _: request, handle, versions=range(2, _WITH_NAMES))[
        group_id
    ]
    return dict.fromkeys(offsets, found) if isinstance(found, ApiError) else found


def delete_offsets(client: Client, group_id: str, keys: Iterable[TopicPartition]) -> Outcomes:
    """Delete a group's offsets of topics that no member reads. An error of the whole group applies to each partition."""
    from kops.protocol.messages import OffsetDeleteRequest, OffsetDeleteResponse
    from kops.protocol.messages.offset_delete_request import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic

    wanted = list(keys)
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for key in wanted:
        topics.setdefault(key.topic, []).append(OffsetDeleteRequestPartition(partition_index=key.partition))
    request = OffsetDeleteRequest(
        group_id=group_id, topics=[OffsetDeleteRequestTopic(name=name, partitions=parts) for name, parts in topics.items()]
    )

    def handle(_: Node, response: Message) -> dict[str, Outcomes | ApiError]:
        assert isinstance(response, OffsetDeleteResponse)
        return {group_id: error_of(response.error_code) or _outcomes(response.topics)}

    if not wanted:
        return {}
    found = by_coordinator(client, "delete offsets", KeyType.GROUP, [group_id], lambda _: request, handle)[group_id]
    return dict.fromkeys(wanted, found) if isinstance(found, ApiError) else found


def _outcomes(topics: Iterable[Any]) -> Outcomes | ApiError:
    """Return the outcome of each partition, or the error of a coordinator that is not ready. The whole request is then repeated."""
    outcomes: Outcomes = {
        TopicPartition(topic.name, one.partition_index): error_of(one.error_code) for topic in topics for one in topic.partitions
    }
    for error in outcomes.values():
        if error is not None and error.name.startswith(("COORDINATOR_", "NOT_COORDINATOR")) and by_name(error.name).retriable:
            return error
    return outcomes
