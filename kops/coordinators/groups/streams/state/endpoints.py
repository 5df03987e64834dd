"""The partitions of each instance of an application, for interactive queries (Kafka's EndpointToPartitionsManager)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kops.coordinators.groups.assignors.java_maps import JavaSet, numbers_of_list, text_hash
from kops.coordinators.groups.streams.state.member import StreamsGroupMember
from kops.coordinators.groups.streams.topics.configured import ConfiguredSubtopology, ConfiguredTopology
from kops.coordinators.runtime.image import CoordinatorImage
from kops.errors import ApiError
from kops.protocol.messages.streams_group_heartbeat_response import Endpoint, EndpointToPartitions, TopicPartition


def endpoint_partitions(
    member: StreamsGroupMember, topology: ConfiguredTopology | None, image: CoordinatorImage
) -> EndpointToPartitions | None:
    """Return the source partitions of a member's tasks, or None if the member has no endpoint.

    As in Kafka, raises ApiError UNKNOWN_SERVER_ERROR if topics of the tasks are unknown.
    """
    if member.user_endpoint is None:
        return None
    if topology is None or topology.subtopologies is None:
        raise ApiError("UNKNOWN_SERVER_ERROR", "No value present")
    tasks = member.assigned_tasks
    return EndpointToPartitions(
        Endpoint(*member.user_endpoint),
        _partitions(tasks.active, topology.subtopologies, image),
        _partitions(tasks.standby, topology.subtopologies, image),
    )


def _partitions(
    tasks: Mapping[str, Collection[int]], subtopologies: Mapping[str, ConfiguredSubtopology], image: CoordinatorImage
) -> list[TopicPartition]:
    found = []
    for subtopology_id, numbers in tasks.items():
        subtopology = subtopologies.get(subtopology_id)
        if subtopology is None:
            raise ApiError("UNKNOWN_SERVER_ERROR", f"There is no subtopology {subtopology_id}.")
        for name in JavaSet(text_hash, [*subtopology.source_topics, *subtopology.repartition_source_topics]):
            topic = image.topic(name)
            if topic is None:
                raise ApiError("UNKNOWN_SERVER_ERROR", f"Topic {name} not found in metadata image")
            partitions = list(numbers_of_list(sorted(numbers)))
            if topic.partition_count < len(partitions):
                partitions = sorted(partitions)[: topic.partition_count]
            found.append(TopicPartition(name, partitions))
    return found
