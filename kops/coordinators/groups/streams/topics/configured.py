"""A topology with the cluster's numbers of partitions (Kafka's ConfiguredTopology, ConfiguredSubtopology, ConfiguredInternalTopic)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from kops.coordinators.groups.streams.topics.topology import java_order
from kops.protocol.messages import streams_group_describe_response as describing
from kops.protocol.messages.create_topics_request import CreatableTopic


class Status(IntEnum):
    """The status codes in heartbeat responses (StreamsGroupHeartbeatResponse.Status)."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class TopicProblem(NamedTuple):
    """The reason why the application cannot run with the existing topics (Kafka's TopicConfigurationException)."""

    status: Status
    text: str


class InternalTopic(NamedTuple):
    """An internal topic of the application. A replication factor of 0 means the cluster's default."""

    name: str
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]

    def describe(self) -> describing.TopicInfo:
        """Return the topic for a description of its group."""
        configs = [describing.KeyValue(key, value) for key, value in self.configs.items()]
        return describing.TopicInfo(self.name, self.partition_count, self.replication_factor, configs)


class ConfiguredSubtopology(NamedTuple):
    """A subtopology: its number of tasks and its topics. Collections are in the order of Kafka's sets and maps."""

    task_count: int
    source_topics: Collection[str]
    repartition_source_topics: Mapping[str, InternalTopic]
    repartition_sink_topics: Collection[str]
    state_changelog_topics: Mapping[str, InternalTopic]

    def describe(self, subtopology_id: str) -> describing.Subtopology:
        """Return the subtopology for a description of its group."""
        return describing.Subtopology(
            subtopology_id=subtopology_id,
            source_topics=sorted(self.source_topics, key=java_order),
            repartition_sink_topics=sorted(self.repartition_sink_topics, key=java_order),
            state_changelog_topics=_described(self.state_changelog_topics.values()),
            repartition_source_topics=_described(self.repartition_source_topics.values()),
        )


class ConfiguredTopology(NamedTuple):
    """The topology. If it has no subtopologies or topics to create, it has a problem, and members get no tasks."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    topics_to_create: Mapping[str, CreatableTopic]
    problem: TopicProblem | None

    @property
    def is_ready(self) -> bool:
        """Whether the application can run."""
        return self.problem is None

    def describe(self) -> describing.Topology:
        """Return the topology for a description of its group."""
        subtopologies = self.subtopologies or {}
        return describing.Topology(self.epoch, [each.describe(subtopology_id) for subtopology_id, each in subtopologies.items()])


def _described(topics: Iterable[InternalTopic]) -> list[describing.TopicInfo]:
    return sorted((topic.describe() for topic in topics), key=lambda topic: java_order(topic.name))
