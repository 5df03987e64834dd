"""A controller of kops and one of Apache Kafka 4.3.0 get the same requests over their sockets: they give the same answers, and write the
same records.

The real one starts on a directory that kops has formatted. Kafka's own tools use both with `--bootstrap-controller`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.broker.quorum.format import FormatOptions
from kops.broker.quorum.raft_log import METADATA_DIR
from kops.metadata.records import read_record
from kops.protocol.declaration import ZERO_UUID, Message
from kops.protocol.messages import (
    AllocateProducerIdsRequest,
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    ControllerRegistrationRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
    alter_configs_request,
    alter_partition_reassignments_request,
    alter_partition_request,
    assign_replicas_to_dirs_request,
    create_partitions_request,
    delete_topics_request,
    describe_configs_request,
    describe_quorum_request,
    elect_leaders_request,
    incremental_alter_configs_request,
    list_partition_reassignments_request,
    update_features_request,
)
from kops.records import read_batches
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_quorum import RealController, controller_settings
from tests.support.nodes.controllers import Controllers
from tests.support.nodes.raw_client import RawClient, plain
from tests.support.parts.controlling import CLUSTER_ID, creation, directory, registration
from tests.support.ports import free_ports

IDLE = {"metadata.max.idle.interval.ms": "0", "broker.session.timeout.ms": "600000"}
TOPIC, BROKER = 2, 4
ABSENT = (ZERO_UUID, bytes(15) + b"\x63")
SET, DELETE, APPEND, SUBTRACT = range(4)


class Side:
    """One of the two: a connection, the ids of the topics that it has made, and all of its answers."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.client = RawClient(f"127.0.0.1:{port}")
        self.topic_ids: dict[str, bytes] = {}
        self.answers: list[tuple[str, Any]] = []

    def ask(self, request: Message, version: int | None = None) -> Message:
        """Send a request, and keep the answer with everything random masked."""
        version = type(request).VERSIONS[-1] if version is None else version
        answer = self.client.ask(request, version)
        assert answer is not None, f"{type(request).__name__} {version} ended the connection"
        if isinstance(answer, CreateTopicsResponse):
            self.topic_ids |= {topic.name: topic.topic_id for topic in answer.topics if topic.topic_id != ZERO_UUID}
        self.answers.append((f"{type(request).__name__} {version}", in_order(plain(answer, self.masked))))
        return answer

    def masked(self, name: str, value: Any) -> Any:
        """Replace topic ids with the topics' names. Mask the directory's id and the time."""
        if name == "topic_id":
            return next(
                (topic for topic, topic_id in self.topic_ids.items() if topic_id == value), value if value in ABSENT else "<unknown>"
            )
        if name in ("replica_directory_id", "last_fetch_timestamp", "last_caught_up_timestamp", "port", "incarnation_id"):
            return "<masked>"
        return value

    def wait_until_registered(self) -> None:
        """Wait until the controller's own registration is in the metadata that it answers from."""
        while True:
            answer = self.client.ask(DescribeClusterRequest(endpoint_type=2), 2)
            if isinstance(answer, DescribeClusterResponse) and answer.brokers:
                return


def in_order(value: Any) -> Any:
    """Sort results by their subject. Kafka has them in the order of its hash maps, and shuffles some."""
    if isinstance(value, dict):
        return {name: in_order(one) for name, one in value.items()}
    if isinstance(value, list):
        return sorted((in_order(one) for one in value), key=repr)
    return value


@pytest.fixture
def sides(oracle: Oracle, tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    """Provide (kops, Kafka), each the only controller of a cluster with the same id."""
    (port,) = free_ports(1)
    settings = controller_settings(1, port, tmp_path / "kafka") | IDLE
    options = FormatOptions(CLUSTER_ID, standalone=True)
    with Controllers(tmp_path / "kops", settings=IDLE) as controllers, RealController(oracle, tmp_path / "run", settings, options):
        controllers.active_id()
        both = Side(controllers.ports[1]), Side(port)
        for side in both:
            side.wait_until_registered()
        yield both
        for side in both:
            side.client.close()


def alter(resource: tuple[int, str], *changes: tuple[str, int, str | None], validate_only: bool = False) -> IncrementalAlterConfigsRequest:
    module = incremental_alter_configs_request
    configs = [module.AlterableConfig(*change) for change in changes]
    return IncrementalAlterConfigsRequest([module.AlterConfigsResource(*resource, configs)], validate_only)


def describe(resource: tuple[int, str], *names: str) -> DescribeConfigsRequest:
    wanted = describe_configs_request.DescribeConfigsResource(*resource, list(names) or None)
    return DescribeConfigsRequest([wanted], include_synonyms=True)


def features(*levels: tuple[str, int, int], validate_only: bool = False) -> UpdateFeaturesRequest:
    updates = [update_features_request.FeatureUpdateKey(name, level, upgrade_type=kind) for name, level, kind in levels]
    return UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)


def brokers(side: Side) -> None:
    """Register three brokers, and one of another cluster, which is rejected. Send heartbeats of all kinds."""
    for version in range(5):
        side.ask(registration(100 + version), version)
    for broker_id in (1, 2, 3):
        epoch = side.ask(registration(broker_id, rack="abc"[broker_id - 1])).broker_epoch  # type: ignore[attr-defined]
        side.ask(BrokerHeartbeatRequest(broker_id, epoch, current_metadata_offset=0))
        for version in range(3):
            side.ask(BrokerHeartbeatRequest(broker_id, epoch, current_metadata_offset=1 << 40), version)
        side.ask(BrokerHeartbeatRequest(broker_id, epoch + 1, current_metadata_offset=1 << 40))
    stranger = registration(9)
    stranger.cluster_id = "another"
    side.ask(stranger)
    side.ask(BrokerHeartbeatRequest(9, 1, current_metadata_offset=1))
    for version in range(3):
        side.ask(DescribeClusterRequest(endpoint_type=1), version)
        side.ask(DescribeClusterRequest(endpoint_type=2 if version else 1), version)
    side.ask(DescribeClusterRequest(endpoint_type=7))
    for broker_id in (100, 9):
        side.ask(UnregisterBrokerRequest(broker_id))
    side.ask(AllocateProducerIdsRequest(1, 5))
    side.ask(ControllerRegistrationRequest(controller_id=77))


def topics(side: Side) -> None:
    """Create topics in all versions, with and without errors, add partitions, and delete the topics."""
    for version in CreateTopicsRequest.VERSIONS:
        side.ask(creation(f"version-{version}", [1, 2], [2, 3]), version)
    side.ask(creation("version-7", [1]))
    side.ask(creation("a b", [1]))
    side.ask(creation("..", [1]))
    side.ask(creation("version.7", [1]))
    side.ask(creation("wide", partitions=1, factor=9))
    side.ask(creation("none", partitions=0, factor=1))
    side.ask(creation("strange", [1, 1]))
    side.ask(creation("stranger", [1], [8]))
    side.ask(creation("uneven", [1], [1, 2]))
    side.ask(creation("set", [1], [2], retention_ms="5000", cleanup_policy="compact,delete"))
    side.ask(creation("unset", [1], retention_ms="soon"))
    side.ask(creation("unknown", [1], colour="blue"))
    twice = creation("twice", [1])
    twice.topics.append(creation("twice", [2]).topics[0])
    twice.topics.append(creation("once", [3]).topics[0])
    twice.topics.append(creation("__cluster_metadata", [3]).topics[0])
    side.ask(twice)
    only = creation("only validated", [1])
    only.topics[0].name = "only-validated"
    only.validate_only = True
    side.ask(only)
    module = create_partitions_request
    for version in CreatePartitionsRequest.VERSIONS:
        wanted = [
            module.CreatePartitionsTopic("set", 3 + version, [module.CreatePartitionsAssignment([1])]),
            module.CreatePartitionsTopic("absent", 3, None),
            module.CreatePartitionsTopic("once", 1, None),
            module.CreatePartitionsTopic("version-7", 1, None),
        ]
        side.ask(CreatePartitionsRequest(wanted, timeout_ms=1000, validate_only=version == 1), version)
    module_2 = delete_topics_request
    for version in DeleteTopicsRequest.VERSIONS:
        names = [f"version-{version}", "absent"]
        if version < 6:
            side.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=1000), version)
        else:
            states = [module_2.DeleteTopicState(name) for name in (*names, "once", "once")]
            states += [module_2.DeleteTopicState(None, ABSENT[1]), module_2.DeleteTopicState(None, side.topic_ids["version-7"])]
            states += [module_2.DeleteTopicState("version-7", side.topic_ids["version-7"]), module_2.DeleteTopicState(None)]
            side.ask(DeleteTopicsRequest(topics=states, timeout_ms=1000), version)


def late(side: Side) -> None:
    """Give the controller no time. It carries out nothing, but answers requests in which nothing is left to do."""
    side.ask(creation("in-time", [1], [2]))
    name, moves, listed = "in-time", alter_partition_reassignments_request, list_partition_reassignments_request
    for timeout_ms in (0, -1):
        created, twice = creation("too-late", [1]), creation("twice", [1])
        twice.topics.append(creation("twice", [2]).topics[0])
        for topics in (created.topics, twice.topics, twice.topics + created.topics, []):
            side.ask(CreateTopicsRequest(topics, timeout_ms))
        added = create_partitions_request.CreatePartitionsTopic(name, 3, None)
        for wanted in ([added], [added, added], []):
            side.ask(CreatePartitionsRequest(wanted, timeout_ms))
        once, by_id = delete_topics_request.DeleteTopicState(name), delete_topics_request.DeleteTopicState(None, side.topic_ids[name])
        neither = delete_topics_request.DeleteTopicState(None)
        for states in ([once], [by_id], [once, by_id], [once, once], [by_id, by_id], [once, once, by_id], [neither], []):
            side.ask(DeleteTopicsRequest(states, timeout_ms=timeout_ms))
        for version in ElectLeadersRequest.VERSIONS:
            for elected in ([elect_leaders_request.TopicPartitions(name, [0, 1])], [], None):
                side.ask(ElectLeadersRequest(0, elected, timeout_ms), version)
        moved = moves.ReassignableTopic(name, [moves.ReassignablePartition(0, [2])])
        for moving in ([moved], []):
            side.ask(AlterPartitionReassignmentsRequest(timeout_ms, topics=moving))
        for asked in ([listed.ListPartitionReassignmentsTopics(name, [0])], [], None):
            side.ask(ListPartitionReassignmentsRequest(timeout_ms, asked))
    side.ask(creation("too-late", [2]))
    side.ask(DeleteTopicsRequest([delete_topics_request.DeleteTopicState(one) for one in (name, "too-late")], timeout_ms=1000))


def partitions(side: Side) -> None:
    """Change leaders, in-sync sets, reassignments and directories."""
    side.ask(creation("moved", [1, 2, 3], [2, 3, 1], [3, 1, 2]))
    for kind in (0, 1):
        wanted = [elect_leaders_request.TopicPartitions("moved", [0, 1, 9]), elect_leaders_request.TopicPartitions("absent", [0])]
        for version in ElectLeadersRequest.VERSIONS:
            if version or not kind:
                side.ask(ElectLeadersRequest(kind if version else 0, wanted), version)
    side.ask(ElectLeadersRequest(0, None))
    side.ask(ElectLeadersRequest(0, []))
    module = alter_partition_request
    topic_id = side.topic_ids["moved"]
    for version in (2, 3):
        states = [module.BrokerState(broker_id) for broker_id in (1, 2)]
        change = module.PartitionData(0, 0, [1, 2], states, 0, 0) if version == 2 else module.PartitionData(0, 0, [], states, 0, 1)
        if version == 2:
            change.new_isr_with_epochs = []
        side.ask(AlterPartitionRequest(1, epoch_of(side, 1), [module.TopicData(topic_id, [change])]), version)
    stale = module.PartitionData(0, 5, [], [module.BrokerState(1)], 0, 1)
    side.ask(AlterPartitionRequest(1, epoch_of(side, 1), [module.TopicData(topic_id, [stale])]))
    side.ask(AlterPartitionRequest(1, 1, [module.TopicData(topic_id, [stale])]))
    side.ask(AlterPartitionRequest(1, epoch_of(side, 1), [module.TopicData(ABSENT[1], [stale])]))
    moves = alter_partition_reassignments_request
    for replicas in ([2, 3], [3, 3], [8], [], None):
        wanted_moves = [moves.ReassignableTopic("moved", [moves.ReassignablePartition(2, replicas), moves.ReassignablePartition(9, [1])])]
        side.ask(AlterPartitionReassignmentsRequest(topics=[*wanted_moves, moves.ReassignableTopic("absent")]))
        side.ask(ListPartitionReassignmentsRequest(topics=None))
        listed = list_partition_reassignments_request.ListPartitionReassignmentsTopics("moved", [0, 2, 9])
        side.ask(ListPartitionReassignmentsRequest(topics=[listed]))
    dirs = assign_replicas_to_dirs_request
    for where in (directory(1), bytes(15) + b"\x02", bytes(16)):
        topic = dirs.TopicData(topic_id, [dirs.PartitionData(0), dirs.PartitionData(9)])
        unknown = dirs.TopicData(ABSENT[1], [dirs.PartitionData(0)])
        side.ask(AssignReplicasToDirsRequest(1, epoch_of(side, 1), [dirs.DirectoryData(where, [topic, unknown])]))
    side.ask(AllocateProducerIdsRequest(1, epoch_of(side, 1)))
    side.ask(AllocateProducerIdsRequest(2, epoch_of(side, 2)))


def epoch_of(side: Side, broker_id: int) -> int:
    """Return a broker's epoch. The broker registers again with the same values, which changes nothing."""
    answer = side.ask(registration(broker_id, rack="abc"[broker_id - 1]))
    epoch: int = answer.broker_epoch  # type: ignore[attr-defined]
    return epoch


def settings(side: Side) -> None:
    """Change and describe settings of topics and brokers."""
    side.ask(creation("orders", [1], [2]))
    topic = (TOPIC, "orders")
    for version in IncrementalAlterConfigsRequest.VERSIONS:
        side.ask(alter(topic, ("retention.ms", SET, f"{version}000"), ("cleanup.policy", APPEND, "compact")), version)
    side.ask(alter(topic, ("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", DELETE, None)))
    side.ask(alter(topic, ("retention.ms", SET, "soon")))
    side.ask(alter(topic, ("colour", SET, "blue")))
    side.ask(alter(topic, ("retention.ms", APPEND, "1")))
    side.ask(alter((TOPIC, "absent"), ("retention.ms", SET, "1")))
    side.ask(alter(topic, ("segment.bytes", SET, "2000000"), validate_only=True))
    side.ask(alter((BROKER, ""), ("log.retention.ms", SET, "7000"), ("min.insync.replicas", SET, "1")))
    side.ask(alter((BROKER, "1"), ("log.cleaner.threads", SET, "2")))
    side.ask(alter((BROKER, "42"), ("log.cleaner.threads", SET, "2")))
    side.ask(alter((BROKER, "x"), ("log.cleaner.threads", SET, "2")))
    side.ask(alter((99, "x"), ("log.cleaner.threads", SET, "2")))
    module = alter_configs_request
    for version in AlterConfigsRequest.VERSIONS:
        changed = module.AlterConfigsResource(TOPIC, "orders", [module.AlterableConfig("retention.bytes", "1000")])
        side.ask(AlterConfigsRequest([changed], validate_only=version == 0), version)
    names = ("cleanup.policy", "retention.ms", "retention.bytes", "segment.bytes", "min.insync.replicas", "unclean.leader.election.enable")
    for version in DescribeConfigsRequest.VERSIONS:
        side.ask(describe(topic, *names), version)
    side.ask(describe((BROKER, "1"), "log.retention.ms", "log.cleaner.threads", "num.partitions", "node.id"))
    side.ask(describe((BROKER, "")))
    for resource in ((TOPIC, "absent"), (TOPIC, "a b"), (BROKER, "2"), (BROKER, "x"), (8, "2")):
        side.ask(describe(resource))


def levels(side: Side) -> None:
    """Raise and lower features, also in ways that are rejected."""
    for version in UpdateFeaturesRequest.VERSIONS:
        side.ask(features(("group.version", 1, 1)) if version else UpdateFeaturesRequest(), version)
    side.ask(features(("group.version", 0, 1)))
    side.ask(features(("group.version", 0, 2)))
    side.ask(features(("group.version", 9, 1)))
    side.ask(features(("tea.version", 1, 1)))
    side.ask(features(("metadata.version", 29, 2)))
    side.ask(features(("metadata.version", 29, 3)))
    side.ask(features(("metadata.version", 99, 1)))
    side.ask(features(("metadata.version", 30, 1), ("share.version", 0, 2), validate_only=True))
    side.ask(features(("transaction.version", 1, 2), ("share.version", 0, 2)))
    side.ask(features(("kraft.version", 1, 1)))
    side.ask(features(("kraft.version", 0, 2)))
    told = side.client.ask(ApiVersionsRequest("tests", "1"), 4)
    assert isinstance(told, ApiVersionsResponse)
    side.answers.append(("features", in_order([plain(told.supported_features), plain(told.finalized_features)])))


def quorum(side: Side) -> None:
    module = describe_quorum_request
    for name, number in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("orders", 0)):
        for version in DescribeQuorumRequest.VERSIONS:
            side.ask(DescribeQuorumRequest([module.TopicData(name, [module.PartitionData(number)])]), version)
            # kops describes an error code in its own words.
            side.answers[-1] = (side.answers[-1][0], re.sub(r"'error_message': '[^']+'", "", repr(side.answers[-1][1])))


STEPS: tuple[Callable[[Side], None], ...] = (brokers, topics, late, partitions, settings, levels, quorum)


@pytest.mark.slow
def test_the_same_answers_and_records(sides: tuple[Side, Side], tmp_path: Path) -> None:
    for step in STEPS:
        for side in sides:
            side.answers.clear()
            step(side)
        for ours, real in zip(sides[0].answers, sides[1].answers, strict=True):
            assert ours == real
    assert len(sides[0].answers)
    ours_log, real_log = (
        records(tmp_path / where / METADATA_DIR, side) for where, side in zip(("kops/node-1", "kafka"), sides, strict=True)
    )
    assert ours_log == real_log


def records(directory: Path, side: Side) -> list[tuple[int, str, Any]]:
    """Return all records of a metadata log: offset, type and fields."""
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    found = []
    for batch in read_batches(data):
        for record in batch.records():
            if batch.is_control:
                found.append((record.offset, "control", None))
            else:
                message, version = read_record(record.value or b"")
                found.append((record.offset, f"{type(message).__name__} {version}", in_order(plain(message, side.masked))))
    return without_order_of_deletions(found)


def without_order_of_deletions(found: list[tuple[int, str, Any]]) -> list[tuple[int, str, Any]]:
    """Sort the topics that are deleted together by name. Kafka has them in the order of a hash map of random ids."""
    ordered = []
    for kind, group in itertools.groupby(found, lambda record: record[1]):
        run = list(group)
        values = [value for _, _, value in run]
        if kind.startswith("RemoveTopicRecord"):
            values.sort(key=repr)
        ordered += [(offset, kind, value) for (offset, _, _), value in zip(run, values, strict=True)]
    return ordered


@pytest.mark.slow
def test_kafkas_tools_say_the_same(sides: tuple[Side, Side], oracle: Oracle) -> None:
    tools = "org.apache.kafka.tools."
    for side in sides:
        brokers(side)
        topics(side)
    for main, *arguments in (
        (f"{tools}MetadataQuorumCommand", "describe", "--status"),
        (f"{tools}MetadataQuorumCommand", "describe", "--replication"),
        (f"{tools}FeatureCommand", "describe"),
        (f"{tools}FeatureCommand", "downgrade", "--feature", "group.version=0"),
        (f"{tools}FeatureCommand", "upgrade", "--feature", "group.version=1"),
        (f"{tools}FeatureCommand", "upgrade", "--release-version", "4.3"),
        (f"{tools}FeatureCommand", "upgrade", "--feature", "tea.version=1"),
        (f"{tools}FeatureCommand", "describe"),
        (f"{tools}ClusterTool", "cluster-id"),
        (f"{tools}ClusterTool", "list-endpoints"),
        (f"{tools}ClusterTool", "unregister", "--id", "101"),
        (f"{tools}ClusterTool", "unregister", "--id", "42"),
        ("kafka.admin.ConfigCommand", "--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "log.retention.ms=1000"),
        ("kafka.admin.ConfigCommand", "--entity-type", "brokers", "--entity-default", "--describe"),
        ("kafka.admin.ConfigCommand", "--entity-type", "brokers", "--entity-name", "1", "--describe"),
        ("kafka.admin.ConfigCommand", "--entity-type", "topics", "--entity-name", "set", "--describe"),
        ("kafka.admin.ConfigCommand", "--entity-type", "brokers", "--entity-name", "1", "--alter", "--add-config", "colour=blue"),
    ):
        told = [said(oracle, main, arguments, side.port) for side in sides]
        assert told[0] == told[1], (main, arguments)


def said(oracle: Oracle, main: str, arguments: list[str], port: int) -> str:
    """Return a tool's output about one side, with addresses, random ids, times and stack traces masked."""
    where = ["--bootstrap-controller", f"127.0.0.1:{port}"]
    first = [arguments[0]] if main.endswith("ClusterTool") else []
    text = oracle.run(main, [*first, *where, *arguments[len(first) :]]).text
    text = re.sub(r"(?m)^\tat .*\n", "", text.replace(str(port), "PORT"))
    text = re.sub(r"[A-Za-z0-9_-]{22}\b", "UUID", text)
    return re.sub(r"\b\d{13}\b", "TIME", text)
