"""A topology with the cluster's numbers of partitions (Kafka's ConfiguredTopology, ConfiguredSubtopology, ConfiguredInternalTopic)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from kops.coordinators.groups.streams.topics.topology import java_order
from kops.protocol.messages import streams_group_describe_response as describing
from kops.protocol.messages.create_topics_request import CreatableTopic


class Status(IntEnum):
    """What a heartbeat tells members beside their tasks (StreamsGroupHeartbeatResponse.Status)."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class TopicProblem(NamedTuple):
    """Why the application cannot run with the topics that are there (Kafka's TopicConfigurationException)."""

    status: Status
    text: str


class InternalTopic(NamedTuple):
    """A topic that the application needs for itself. Without a replication factor (0) the cluster's default holds."""

    name: str
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]

    def describe(self) -> describing.TopicInfo:
        """The topic in a description of its group."""
        configs = [describing.KeyValue(key, value) for key, value in self.configs.items()]
        return describing.TopicInfo(self.name, self.partition_count, self.replication_factor, configs)


class ConfiguredSubtopology(NamedTuple):
    """A subtopology: how many tasks it has, and its topics. Collections are in the order of Kafka's sets and maps."""

    task_count: int
    source_topics: Collection[str]
    repartition_source_topics: Mapping[str, InternalTopic]
    repartition_sink_topics: Collection[str]
    state_changelog_topics: Mapping[str, InternalTopic]

    def describe(self, subtopology_id: str) -> describing.Subtopology:
        """The subtopology in a description of its group."""
        return describing.Subtopology(
            subtopology_id=subtopology_id,
            source_topics=sorted(self.source_topics, key=java_order),
            repartition_sink_topics=sorted(self.repartition_sink_topics, key=java_order),
            state_changelog_topics=_described(self.state_changelog_topics.values()),
            repartition_source_topics=_described(self.repartition_source_topics.values()),
        )


class ConfiguredTopology(NamedTuple):
    """The topology. Without subtopologies, or with topics to create, there is a problem, and members get no tasks."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    topics_to_create: Mapping[str, CreatableTopic]
    problem: TopicProblem | None

    @property
    def is_ready(self) -> bool:
        """Whether the application can run."""
        return self.problem is None

    def describe(self) -> describing.Topology:
        """The topology in a description of its group."""
        subtopologies = self.subtopologies or {}
        return describing.Topology(self.epoch, [each.describe(subtopology_id) for subtopology_id, each in subtopologies.items()])


def _described(topics: Iterable[InternalTopic]) -> list[describing.TopicInfo]:
    return sorted((topic.describe() for topic in topics), key=lambda topic: java_order(topic.name))
