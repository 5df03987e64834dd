"""Decides the partition counts of internal topics (Kafka's RepartitionTopics, CopartitionedTopicsEnforcer, ChangelogTopics).

A repartition topic has as many partitions as the largest topic that its writing subtopology reads, unless the application asks
for a number. Topics that are joined must have equal numbers. A changelog has one partition for each task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from kops.coordinators.groups.assignors.java_maps import JavaSet, text_hash
from kops.coordinators.groups.streams.topics.configured import Status, TopicProblem
from kops.coordinators.groups.streams.topics.topology import StreamsTopology, java_order, source_topics_of
from kops.errors import ApiError, KopsError
from kops.protocol.messages.streams_group_topology_value import Subtopology

PartitionCount = Callable[[str], int | None]
"""Returns the current or future number of partitions of a topic, or None if unknown."""


class TopicProblemError(KopsError):
    """The topics do not match the topology."""

    def __init__(self, problem: TopicProblem) -> None:
        super().__init__(problem.text)
        self.problem = problem


def decide_partition_counts(
    topology: StreamsTopology, copartition_groups: Iterable[Iterable[str]], existing: PartitionCount
) -> dict[str, int]:
    """Return the partition counts of internal topics. Raises TopicProblemError, ApiError STREAMS_INVALID_TOPOLOGY."""
    subtopologies = list(topology.subtopologies.values())
    decided = _repartition_counts(subtopologies, existing)

    def count_of(name: str) -> int | None:
        found = existing(name)
        return decided.get(name) if found is None else found

    fixed: dict[str, None] = {}
    flexible: dict[str, None] = {}
    for subtopology in subtopologies:
        for topic in subtopology.repartition_source_topics:
            (flexible if topic.partitions == 0 else fixed)[topic.name] = None
    for group in copartition_groups:
        decided.update(_copartitioned_counts(group, fixed.keys(), flexible.keys(), count_of))
    decided.update(_changelog_counts(subtopologies, count_of))
    return decided


def _repartition_counts(subtopologies: Sequence[Subtopology], existing: PartitionCount) -> dict[str, int]:
    counts = {topic.name: topic.partitions for each in subtopologies for topic in each.repartition_source_topics if topic.partitions != 0}
    is_missing = True
    while is_missing:
        is_missing = has_progress = False
        for subtopology in subtopologies:
            for sink in subtopology.repartition_sink_topics:
                if sink in counts:
                    continue
                count = _largest_source(subtopology, counts, existing)
                if count is None:
                    is_missing = True
                else:
                    counts[sink] = count
                    has_progress = True
        if is_missing and not has_progress:
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. "
                "There may be loops in the topology that cannot be resolved."
            )
    if any(topic.name not in counts for subtopology in subtopologies for topic in subtopology.repartition_source_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is never used as a "
            "sink topic."
        )
    return counts


def _largest_source(subtopology: Subtopology, counts: Mapping[str, int], existing: PartitionCount) -> int | None:
    found = [counts[topic.name] for topic in subtopology.repartition_source_topics if topic.name in counts]
    found += (count for name in subtopology.source_topics if (count := existing(name)) is not None)
    return max(found, default=None)


def copartition_groups(topology: StreamsTopology) -> list[list[str]]:
    """Return the groups of copartitioned topics, in the order of Kafka's sets."""
    groups = []
    for subtopology in topology.subtopologies.values():
        for group in subtopology.copartition_groups:
            names: JavaSet[str] = JavaSet(text_hash)
            for index in group.source_topics:
                names.add(_at(subtopology.source_topics, index))
            for index in group.repartition_source_topics:
                names.add(_at([topic.name for topic in subtopology.repartition_source_topics], index))
            groups.append(list(names))
    return groups


def _at(names: Sequence[str], index: int) -> str:
    if not 0 <= index < len(names):
        raise ApiError("UNKNOWN_SERVER_ERROR", f"Index {index} out of bounds for length {len(names)}")
    return names[index]


def _copartitioned_counts(group: Iterable[str], fixed: Set[str], flexible: Set[str], count_of: PartitionCount) -> dict[str, int]:
    """Return the partition counts of the internal topics in a group. Raises TopicProblemError if its topics cannot have equal counts."""
    names = list(group)
    if not names:
        return {}
    internal = {name: _known_count(name, count_of) for name in names if name in fixed or name in flexible}
    external = {name: _known_count(name, count_of) for name in names if name not in internal}
    if external:
        count = _equal_count(external.values(), external)
    elif fixed:
        count = _equal_count([_known_count(name, count_of) for name in fixed], internal)
    else:
        count = max(internal.values())
    for name, own in internal.items():
        if name in fixed and own != count:
            raise _incorrect(
                f"Number of partitions [{own}] of repartition topic [{name}] doesn't match number of partitions [{count}] of the "
                "source topic."
            )
    return dict.fromkeys(internal, count)


def _known_count(name: str, count_of: PartitionCount) -> int:
    count = count_of(name)
    if count is None:
        raise ApiError("UNKNOWN_SERVER_ERROR", f"Number of partitions is not set for topic: {name}")
    return count


def _equal_count(counts: Iterable[int], shown: Mapping[str, int]) -> int:
    """Return the common count. If the counts differ, the error lists the topics in `shown`, as in Kafka."""
    found = set(counts)
    if len(found) > 1:
        listed = ", ".join(f"{name}={shown[name]}" for name in sorted(shown, key=java_order))
        raise _incorrect(f"Following topics do not have the same number of partitions: [{{{listed}}}]")
    return found.pop()


def _changelog_counts(subtopologies: Iterable[Subtopology], count_of: PartitionCount) -> dict[str, int]:
    counts = {}
    for subtopology in subtopologies:
        found = [count_of(name) for name in source_topics_of(subtopology)]
        known = [count for count in found if count is not None]
        if len(known) < len(found):
            raise ApiError("UNKNOWN_SERVER_ERROR", "No partition count for source topic")
        if not known:
            raise _invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
        for topic in subtopology.state_changelog_topics:
            counts[topic.name] = max(known)
    return counts


def _invalid(text: str) -> ApiError:
    return ApiError("STREAMS_INVALID_TOPOLOGY", text)


def _incorrect(text: str) -> TopicProblemError:
    return TopicProblemError(TopicProblem(Status.INCORRECTLY_PARTITIONED_TOPICS, text))
