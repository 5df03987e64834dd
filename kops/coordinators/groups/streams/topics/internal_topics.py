"""Configures a topology with the cluster's topics (Kafka's InternalTopicManager)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kops.config.values.topic_names import check_topic_name
from kops.coordinators.groups.assignors.java_maps import JavaMap, put_ordered, text_hash, texts_of_list
from kops.coordinators.groups.streams.topics.configured import (
    ConfiguredSubtopology,
    ConfiguredTopology,
    InternalTopic,
    Status,
    TopicProblem,
)
from kops.coordinators.groups.streams.topics.partition_counts import TopicProblemError, copartition_groups, decide_partition_counts
from kops.coordinators.groups.streams.topics.topology import StreamsTopology, java_order, source_topics_of
from kops.coordinators.runtime.image import CoordinatorImage
from kops.errors import ApiError
from kops.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig
from kops.protocol.messages.streams_group_topology_value import Subtopology, TopicInfo

_SHOWN_TOPIC_COUNT = 3


def configure_topics(topology: StreamsTopology, image: CoordinatorImage) -> ConfiguredTopology:
    """Determine partition counts and missing topics. Raises ApiError for a topology that cannot be satisfied."""
    groups = copartition_groups(topology)
    try:
        return _configure(topology, groups, image)
    except TopicProblemError as error:
        return ConfiguredTopology(topology.epoch, None, {}, error.problem)


def _configure(topology: StreamsTopology, groups: Iterable[Iterable[str]], image: CoordinatorImage) -> ConfiguredTopology:
    def existing(name: str) -> int | None:
        topic = image.topic(name)
        return None if topic is None else topic.partition_count

    _check_source_topics(topology, image)
    decided = decide_partition_counts(topology, groups, existing)
    subtopologies = {
        subtopology_id: _configured(topology.subtopologies[subtopology_id], image, decided)
        for subtopology_id in sorted(topology.subtopologies, key=java_order)
    }
    missing = _missing_topics(subtopologies.values(), topology, image)
    problem = TopicProblem(Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {_summary(missing)}") if missing else None
    return ConfiguredTopology(topology.epoch, subtopologies, missing, problem)


def _check_source_topics(topology: StreamsTopology, image: CoordinatorImage) -> None:
    missing = {name for subtopology in topology.subtopologies.values() for name in subtopology.source_topics if image.topic(name) is None}
    if missing:
        text = f"Source topics {_summary(sorted(missing, key=java_order))} are missing."
        raise TopicProblemError(TopicProblem(Status.MISSING_SOURCE_TOPICS, text))


def _configured(subtopology: Subtopology, image: CoordinatorImage, decided: Mapping[str, int]) -> ConfiguredSubtopology:
    counts = []
    for name in source_topics_of(subtopology):
        topic = image.topic(name)
        counts.append(decided[name] if topic is None else topic.partition_count)
    repartition_sources = _internal_topics(subtopology.repartition_source_topics, decided)
    changelogs = _internal_topics(subtopology.state_changelog_topics, decided)
    if max(counts) <= 0:
        raise ApiError("UNKNOWN_SERVER_ERROR", "Number of tasks must be positive")
    return ConfiguredSubtopology(
        task_count=max(counts),
        source_topics=texts_of_list(subtopology.source_topics),
        repartition_source_topics=repartition_sources,
        repartition_sink_topics=texts_of_list(subtopology.repartition_sink_topics),
        state_changelog_topics=changelogs,
    )


def _internal_topics(topics: Iterable[TopicInfo], decided: Mapping[str, int]) -> dict[str, InternalTopic]:
    found: dict[str, InternalTopic] = {}
    for topic in topics:
        count = topic.partitions or decided[topic.name]
        configs = {config.key: config.value for config in topic.topic_configs}
        if len(configs) < len(topic.topic_configs):
            raise ApiError("UNKNOWN_SERVER_ERROR", f"A setting of topic {topic.name} is there twice.")
        check_topic_name(topic.name)
        if count < 1 or topic.name in found:
            raise ApiError("UNKNOWN_SERVER_ERROR", f"Topic {topic.name} is there twice, or has no partitions.")
        found[topic.name] = InternalTopic(topic.name, count, topic.replication_factor, put_ordered(configs, text_hash))
    return put_ordered(found, text_hash)


def _missing_topics(
    subtopologies: Iterable[ConfiguredSubtopology], topology: StreamsTopology, image: CoordinatorImage
) -> dict[str, CreatableTopic]:
    wanted: JavaMap[str, InternalTopic] = JavaMap(text_hash)
    for subtopology in subtopologies:
        for topic in (*subtopology.repartition_source_topics.values(), *subtopology.state_changelog_topics.values()):
            wanted[topic.name] = topic
    for name in topology.required_topics():
        found, expected = image.topic(name), wanted.get(name)
        if found is None:
            continue
        wanted.discard(name)
        if expected is not None and found.partition_count != expected.partition_count:
            text = f"expected {expected.partition_count}, found {found.partition_count}"
            raise TopicProblemError(
                TopicProblem(Status.INCORRECTLY_PARTITIONED_TOPICS, f"Existing topic {name} has different number of partitions: {text}")
            )
    return {name: _creatable(topic) for name, topic in wanted.items()}


def _creatable(topic: InternalTopic) -> CreatableTopic:
    configs = [CreatableTopicConfig(key, value) for key, value in topic.configs.items()]
    return CreatableTopic(
        name=topic.name, num_partitions=topic.partition_count, replication_factor=topic.replication_factor or -1, configs=configs
    )


def _summary(names: Collection[str]) -> str:
    listed = ", ".join(list(names)[:_SHOWN_TOPIC_COUNT])
    more = len(names) - _SHOWN_TOPIC_COUNT
    return f"{listed} and {more} additional topics" if more > 0 else listed
