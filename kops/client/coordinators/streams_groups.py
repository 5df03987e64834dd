"""Streams groups, their members and the partitions that these read. Source: Kafka's DescribeStreamsGroupsHandler.

A task reads the partition with its number of each source topic of its subtopology, if the topic has that many partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kops.client.client import Client, error_of
from kops.client.coordinators.finding import KeyType, by_coordinator
from kops.client.coordinators.groups import GroupDescription, GroupMember
from kops.client.topics import describe_topics
from kops.errors import ApiError
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.node import Node
    from kops.protocol.declaration import Message
    from kops.protocol.messages.streams_group_describe_response import Assignment, DescribedGroup, Member

STREAMS: Final = "Streams"


def describe_streams_groups(client: Client, group_ids: Iterable[str]) -> dict[str, GroupDescription | ApiError]:
    """Describe streams groups."""
    from kops.protocol.messages import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse

    wanted = list(group_ids)

    def handle(node: Node, response: Message) -> dict[str, tuple[DescribedGroup, Node] | ApiError]:
        assert isinstance(response, StreamsGroupDescribeResponse)
        return {one.group_id: error_of(one.error_code, one.error_message) or (one, node) for one in response.groups}

    found = by_coordinator(
        client, "describe streams groups", KeyType.GROUP, wanted, lambda keys: StreamsGroupDescribeRequest(group_ids=keys), handle
    )
    return {group_id: one if isinstance(one, ApiError) else _described(client, *one) for group_id, one in found.items()}


def _described(client: Client, one: DescribedGroup, node: Node) -> GroupDescription:
    sources = _sources(client, one)
    members = [_member(member, sources) for member in one.members]
    return GroupDescription(one.group_id, STREAMS, one.group_state, "streams", "", node, members, one.group_epoch, one.assignment_epoch)


_Sources = Mapping[str, list[tuple[str, int]]]
"""The topics that each subtopology reads, with their numbers of partitions."""


def _sources(client: Client, group: DescribedGroup) -> _Sources:
    names = {
        subtopology.subtopology_id: [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]
        for subtopology in (group.topology.subtopologies if group.topology is not None else None) or ()
    }
    topics = describe_topics(client, {name for each in names.values() for name in each})
    counts = {name: len(info.partitions) for name, info in topics.items() if not isinstance(info, ApiError)}
    return {subtopology_id: [(name, counts.get(name, 0)) for name in each] for subtopology_id, each in names.items()}


def _member(one: Member, sources: _Sources) -> GroupMember:
    assigned, target = _partitions(one.assignment, sources), _partitions(one.target_assignment, sources)
    return GroupMember(
        one.member_id, one.instance_id, one.client_id, one.client_host, assigned, target, one.member_epoch, one.rack_id, not one.is_classic
    )


def _partitions(assignment: Assignment, sources: _Sources) -> list[TopicPartition]:
    return sorted(
        TopicPartition(name, number)
        for tasks in assignment.active_tasks
        for name, count in sources.get(tasks.subtopology_id, ())
        for number in tasks.partitions
        if number < count
    )
