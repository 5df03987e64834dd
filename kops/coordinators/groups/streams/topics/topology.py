"""The topology of a streams group (Kafka's StreamsTopology).

A subtopology is a connected part. Its tasks are numbered like the partitions of its source topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kops.coordinators.groups.assignors.java_maps import JavaSet, put_ordered, text_hash
from kops.errors import ApiError
from kops.protocol.messages import streams_group_describe_response as describing
from kops.protocol.messages import streams_group_heartbeat_request as asking
from kops.protocol.messages import streams_group_topology_value as stored


@dataclass(frozen=True, slots=True)
class StreamsTopology:
    """The topology: subtopologies by id in the order of Kafka's map, and for each topic, including internal ones, its reading
    subtopology."""

    epoch: int
    subtopologies: Mapping[str, stored.Subtopology]
    source_topics: Mapping[str, stored.Subtopology]

    @classmethod
    def from_record(cls, value: stored.StreamsGroupTopologyValue) -> StreamsTopology:
        """Return the topology in a record. As in Kafka, raises ApiError UNKNOWN_SERVER_ERROR if it is invalid."""
        ids = [subtopology.subtopology_id for subtopology in value.subtopologies]
        if len(set(ids)) < len(ids):
            raise ApiError("UNKNOWN_SERVER_ERROR", "Two subtopologies have the same id.")
        if value.epoch < 0:
            raise ApiError("UNKNOWN_SERVER_ERROR", "Topology epoch must be non-negative.")
        subtopologies = put_ordered(dict(zip(ids, value.subtopologies, strict=True)), text_hash)
        sources = {name: subtopology for subtopology in subtopologies.values() for name in source_topics_of(subtopology)}
        return cls(value.epoch, subtopologies, sources)

    def required_topics(self) -> list[str]:
        """Return all topics, in the order of Kafka's set."""
        names: JavaSet[str] = JavaSet(text_hash)
        for subtopology in self.subtopologies.values():
            for name in (*source_topics_of(subtopology), *(topic.name for topic in subtopology.state_changelog_topics)):
                names.add(name)
        return list(names)

    def describe(self) -> describing.Topology:
        """Return the topology for a description of its group, as its members sent it."""
        described = [
            describing.Subtopology(
                subtopology_id=subtopology_id,
                source_topics=sorted(subtopology.source_topics, key=java_order),
                repartition_sink_topics=sorted(subtopology.repartition_sink_topics, key=java_order),
                state_changelog_topics=_described(subtopology.state_changelog_topics),
                repartition_source_topics=_described(subtopology.repartition_source_topics),
            )
            for subtopology_id, subtopology in sorted(self.subtopologies.items(), key=lambda item: java_order(item[0]))
        ]
        return describing.Topology(self.epoch, described)


def java_order(text: str) -> bytes:
    """Return the sort key of Java's string order."""
    return text.encode("utf-16-be", "surrogatepass")


def source_topics_of(subtopology: stored.Subtopology) -> list[str]:
    """Return the topics that a subtopology reads."""
    return [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]


def topology_value(topology: asking.Topology) -> stored.StreamsGroupTopologyValue:
    """Return the value of the record of a topology that a member has sent."""
    return stored.StreamsGroupTopologyValue(
        topology.epoch,
        [
            stored.Subtopology(
                subtopology_id=subtopology.subtopology_id,
                source_topics=subtopology.source_topics,
                source_topic_regex=subtopology.source_topic_regex,
                state_changelog_topics=[_stored(topic) for topic in subtopology.state_changelog_topics],
                repartition_sink_topics=subtopology.repartition_sink_topics,
                repartition_source_topics=[_stored(topic) for topic in subtopology.repartition_source_topics],
                copartition_groups=[
                    stored.CopartitionGroup(group.source_topics, group.source_topic_regex, group.repartition_source_topics)
                    for group in subtopology.copartition_groups
                ],
            )
            for subtopology in topology.subtopologies
        ],
    )


def _stored(topic: asking.TopicInfo) -> stored.TopicInfo:
    configs = [stored.TopicConfig(config.key, config.value) for config in topic.topic_configs]
    return stored.TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


def _described(topics: Iterable[stored.TopicInfo]) -> list[describing.TopicInfo]:
    found = [
        describing.TopicInfo(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            [describing.KeyValue(config.key, config.value) for config in topic.topic_configs],
        )
        for topic in topics
    ]
    return sorted(found, key=lambda topic: java_order(topic.name))
