"""The internal topics of streams applications compared with Kafka's InternalTopicManager: random topologies on random topics get the same
partition counts, the same missing topics, or the same problem.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from kops.coordinators.groups.streams.topics.internal_topics import configure_topics
from kops.coordinators.groups.streams.topics.topology import StreamsTopology, topology_value
from kops.errors import ApiError
from kops.protocol.messages import StreamsGroupDescribeResponse, StreamsGroupHeartbeatRequest
from kops.protocol.messages.create_topics_request import CreateTopicsRequest
from kops.protocol.messages.streams_group_describe_response import DescribedGroup
from kops.protocol.messages.streams_group_heartbeat_request import CopartitionGroup, KeyValue, Subtopology, TopicInfo, Topology
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import JavaCoordinators
from tests.support.parts.groups.coordinator_images import Image

STREAMS = "coordinator.group.streams."
SOURCES = ("orders", "stock", "big")
INTERNAL = tuple(f"app-{name}" for name in ("left", "right", "Wide", "ä-none", "p", "q"))


class JavaManager:
    """Kafka's class."""

    def __init__(self, java: JavaCoordinators) -> None:
        self.java = java
        oracle = java.oracle
        self.log = oracle.java_class("org.slf4j.LoggerFactory").getLogger("topologies")
        self.manager = oracle.java_class(f"org.apache.kafka.{STREAMS}topics.InternalTopicManager")
        self.topology = oracle.java_class(f"org.apache.kafka.{STREAMS}StreamsTopology")
        self.time = oracle.java_class("org.apache.kafka.common.utils.Time").SYSTEM

    def configure(self, topology: Topology, topics: dict[str, tuple[bytes, int]]) -> Any:
        """Return (the problem, the described topology, the topics to create), or None if it throws something else."""
        asked = StreamsGroupHeartbeatRequest("g", "m", 0, topology=topology)
        try:
            made = self.topology.fromHeartbeatRequest(self.java.message(asked, 0).topology())
            found = self.manager.configureTopics(self.log, "g", "m", self.java.long(0), made, self.java.image(topics), self.time)
        except Py4JJavaError as error:
            return str(error.java_exception.getClass().getSimpleName())
        answer, request = (self.java.make(f"common.message.{name}Data") for name in ("StreamsGroupDescribeResponse", "CreateTopicsRequest"))
        group = self.java.make("common.message.StreamsGroupDescribeResponseData$DescribedGroup")
        answer.groups().add(group.setTopology(found.asStreamsGroupDescribeTopology()))
        for topic in found.internalTopicsToBeCreated().values():
            request.topics().add(topic.duplicate())
        problem = found.topicConfigurationException()
        told = (int(problem.get().status().code()), str(problem.get().getMessage())) if problem.isPresent() else None
        return told, self.java.message_bytes(answer, 0), self.java.message_bytes(request, 7)


def configured(topology: Topology, topics: dict[str, tuple[bytes, int]]) -> Any:
    """Return the same for kops. An error is its name."""
    try:
        found = configure_topics(StreamsTopology.from_record(topology_value(topology)), Image(topics))
    except ApiError as error:
        return error.name
    told = None if found.problem is None else (int(found.problem.status), found.problem.text)
    described = StreamsGroupDescribeResponse(groups=[DescribedGroup(topology=found.describe())])
    return told, described.encode(0), CreateTopicsRequest(list(found.topics_to_create.values())).encode(7)


def drawn(rng: random.Random) -> tuple[Topology, dict[str, tuple[bytes, int]]]:
    """Draw a topology and the topics that exist. Most topologies have a subtopology that writes what another one reads."""
    topics = {name: (rng.randbytes(16), rng.choice((2, 3, 3, 6))) for name in SOURCES if rng.random() < 0.97}
    for name in rng.sample(INTERNAL, rng.choice((0, 0, 1, 2))):
        topics[name] = (rng.randbytes(16), rng.choice((2, 3, 6)))
    partitions = {name: rng.choice((0, 0, 0, 2, 3)) for name in INTERNAL}
    names = rng.sample([name for name in INTERNAL if name != "app-ä-none" or rng.random() < 0.05], rng.randrange(4))
    subtopologies = []
    count = rng.randrange(1, 5)
    for number in range(count):
        sources = rng.sample(SOURCES, rng.choice((0, 1, 1, 2, 3))) if number else [rng.choice(SOURCES)]
        repartition = [internal(rng, name, partitions[name]) for name in names if rng.random() < (0.5 if number else 0.1)]
        sinks = [name for name in names if rng.random() < (0.3 if number else 0.8)]
        changelogs = [internal(rng, f"app-store-{each}", 0) for each in range(rng.randrange(3))] if rng.random() < 0.4 else []
        groups = [
            CopartitionGroup(indexes(rng, len(sources)), [], indexes(rng, len(repartition)))
            for _ in range(rng.choice((0, 1, 1, 2)))
            if sources or repartition
        ]
        subtopologies.append(Subtopology(str(number * 7), sources, [], changelogs, sinks, repartition, groups))
    rng.shuffle(subtopologies)
    return Topology(rng.randrange(3), subtopologies), topics


def internal(rng: random.Random, name: str, partitions: int) -> TopicInfo:
    configs = [KeyValue(key, "1") for key in rng.sample(("retention.ms", "cleanup.policy", "segment.bytes"), rng.randrange(3))]
    return TopicInfo(name, partitions, rng.choice((0, 0, 3)), configs)


def indexes(rng: random.Random, count: int) -> list[int]:
    """Draw places in a list, now and then one behind its end."""
    return rng.sample(range(count), rng.randrange(count + 1)) + ([count] if rng.random() < 0.02 else [])


def compare(oracle: Oracle, seeds: range) -> Counter[str]:
    java = JavaManager(JavaCoordinators(oracle))
    seen: Counter[str] = Counter()
    for seed in seeds:
        topology, topics = drawn(random.Random(seed))
        theirs, ours = java.configure(topology, topics), configured(topology, topics)
        if isinstance(theirs, str):
            known = {"StreamsInvalidTopologyException": "STREAMS_INVALID_TOPOLOGY"}
            assert ours == known.get(theirs, "UNKNOWN_SERVER_ERROR" if theirs != "InvalidTopicException" else "INVALID_TOPIC_EXCEPTION"), (
                seed,
                theirs,
            )
            seen[theirs] += 1
        else:
            assert ours == theirs, (seed, topology)
            seen[str(theirs[0] and theirs[0][0])] += 1
    return seen


def test_random_topologies(oracle: Oracle) -> None:
    seen = compare(oracle, range(50))
    assert {"None", "1", "2", "3", "StreamsInvalidTopologyException"} <= set(seen), seen


@pytest.mark.slow
def test_many_random_topologies(oracle: Oracle, seed_count: int | None) -> None:
    compare(oracle, range(1000, 1000 + (seed_count or 500)))
