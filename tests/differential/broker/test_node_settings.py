"""Settings changed while a kops node and a real Kafka node run: both reject them alike, with the same messages, and describe them alike
afterwards. The nodes are also set to more replicas of the internal topics than there are brokers, and refuse groups and transactions alike.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kops.protocol.declaration import Message
from kops.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    InitProducerIdRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ReadShareGroupStateRequest,
    ShareGroupHeartbeatRequest,
    StreamsGroupDescribeRequest,
)
from kops.protocol.messages.describe_configs_request import DescribeConfigsResource
from kops.protocol.messages.incremental_alter_configs_request import AlterableConfig, AlterConfigsResource
from kops.protocol.messages.join_group_request import JoinGroupRequestProtocol
from kops.protocol.messages.metadata_request import MetadataRequestTopic
from kops.protocol.messages.offset_commit_request import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kops.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from kops.protocol.messages.read_share_group_state_request import PartitionData, ReadStateData
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker
from tests.support.kafka.two_brokers import Side
from tests.support.nodes.kops_nodes import KopsNodes

pytestmark = pytest.mark.slow

TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
PATIENCE_S = 60
# Where the two nodes listen and keep their files.
PLACES = {"listeners", "advertised.listeners", "controller.quorum.voters", "controller.quorum.bootstrap.servers", "log.dir", "log.dirs"}
# (resource type, name, operation, setting, value)
CHANGES: tuple[tuple[int, str, int, str, str | None], ...] = (
    (BROKER, "", SET, "log.retention.ms", "123456"),
    (BROKER, "1", SET, "log.retention.ms", "234567"),
    (BROKER, "", SET, "log.retention.hours", "5"),
    (BROKER, "1", SET, "node.id", "5"),
    (BROKER, "", SET, "cordoned.log.dirs", "*"),
    (BROKER, "1", SET, "cordoned.log.dirs", "/nowhere"),
    (BROKER, "", SET, "num.io.threads", "100"),
    (BROKER, "", SET, "num.io.threads", "16"),
    (BROKER, "", SET, "log.cleaner.threads", "9"),
    (BROKER, "", SET, "log.cleaner.threads", "2"),
    (BROKER, "", SET, "message.max.bytes", "x"),
    (BROKER, "", SET, "message.max.bytes", "2000000"),
    (BROKER, "", APPEND, "log.cleanup.policy", "compact"),
    (BROKER, "", SUBTRACT, "log.cleanup.policy", "delete"),
    (BROKER, "", APPEND, "message.max.bytes", "1"),
    (BROKER, "", SET, "leader.replication.throttled.rate", "1000000"),
    (BROKER, "", SET, "leader.replication.throttled.rate", "-1"),
    (BROKER, "1", SET, "listener.name.plaintext.max.connections", "77"),
    (BROKER, "1", SET, "ssl.keystore.type", "PEM"),
    (BROKER, "", SET, "some.own.setting", "x"),
    (BROKER, "2", SET, "log.retention.ms", "1"),
    (BROKER, "x", SET, "log.retention.ms", "1"),
    (BROKER, "1", DELETE, "log.retention.ms", None),
    (BROKER, "", SET, "log.local.retention.ms", "999999"),
    (BROKER, "", SET, "log.roll.ms", "7200000"),
    (TOPIC, "t", SET, "retention.ms", "77"),
    (TOPIC, "t", SET, "retention.ms", "-2"),
    (TOPIC, "t", SET, "no.such", "1"),
    (TOPIC, "t", APPEND, "cleanup.policy", "delete"),
    (TOPIC, "t", SET, "remote.storage.enable", "true"),
    (TOPIC, "t", SET, "internal.segment.bytes", "7000"),
    (TOPIC, "t", DELETE, "retention.ms", None),
    (TOPIC, "t", SET, "leader.replication.throttled.replicas", "0:1"),
    # A list begins with the default. A change to the default list becomes the topic's own value.
    (TOPIC, "t", APPEND, "cleanup.policy", "compact"),
    (TOPIC, "t", DELETE, "cleanup.policy", ""),
    (TOPIC, "t", SUBTRACT, "cleanup.policy", "compact"),
    (TOPIC, "t", DELETE, "cleanup.policy", None),
    (TOPIC, "t", SUBTRACT, "cleanup.policy", "delete"),
    (TOPIC, "t", APPEND, "cleanup.policy", "delete"),
    (TOPIC, "t", DELETE, "cleanup.policy", None),
    (TOPIC, "t", APPEND, "follower.replication.throttled.replicas", "0:1,0:2"),
    (TOPIC, "t", DELETE, "follower.replication.throttled.replicas", ""),
    (BROKER, "", DELETE, "log.cleanup.policy", None),
    (GROUP, "g", SET, "consumer.session.timeout.ms", "50000"),
    (GROUP, "g", SET, "consumer.session.timeout.ms", "1"),
    (GROUP, "g", SET, "consumer.heartbeat.interval.ms", "x"),
    (GROUP, "g", SET, "no.such", "1"),
    (GROUP, "g", APPEND, "share.isolation.level", "read_committed"),
    (GROUP, "g", SET, "share.auto.offset.reset", "by_duration:PT1H"),
    (GROUP, "g", SET, "share.auto.offset.reset", "none"),
    (GROUP, "", SET, "consumer.session.timeout.ms", "50000"),
    (GROUP, "g", DELETE, "consumer.session.timeout.ms", None),
    (METRICS, "m", SET, "interval.ms", "1000"),
    (METRICS, "m", SET, "interval.ms", "99"),
    (METRICS, "m", SET, "metrics", "org.apache.kafka.producer.,*"),
    (METRICS, "m", APPEND, "metrics", "more"),
    (METRICS, "m", SET, "match", "client_software_name=Java.*, client_id=a"),
    (METRICS, "m", SET, "match", "anything"),
    (METRICS, "m", SET, "some.thing", "1"),
    (METRICS, "", SET, "interval.ms", "1000"),
    (METRICS, "m", DELETE, "interval.ms", None),
)


@pytest.fixture(scope="module")
def both(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Provide a kops node and a real one, each broker and controller, with a topic."""
    work = tmp_path_factory.mktemp("settings")
    settings = {"log.retention.minutes": 50, "broker.rack": "r1", "ssl.key.password": "secret", "own.setting": "x"}
    settings |= {f"{name}.replication.factor": 2 for name in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")}
    # Settings of an authorizer, which neither node has.
    settings |= {"super.users": "User:admin", "allow.everyone.if.no.acl.found": "true"}
    with (
        KopsNodes(work / "kops", 1, settings=settings) as nodes,
        RealBroker(oracle, work / "kafka", log_dirs=[work / "kafka-logs"], settings=settings) as broker,
    ):
        sides = Side("kops", nodes.bootstrap), Side("kafka", broker.bootstrap)
        for side in sides:
            side.create("t")
        yield sides
        for side in sides:
            side.client.close()


def change(side: Side, kind: int, name: str, operation: int, setting: str, value: str | None) -> tuple[int, str | None]:
    """Change a setting, and return the error's code and text."""
    resource = AlterConfigsResource(kind, name, [AlterableConfig(setting, operation, value)])
    found = side.client.ask(IncrementalAlterConfigsRequest([resource], validate_only=False), 1)
    assert isinstance(found, IncrementalAlterConfigsResponse)
    (result,) = found.responses
    return result.error_code, result.error_message


def description(side: Side, kind: int, name: str) -> dict[str, tuple[Any, ...]]:
    """Return the description of all settings by name."""
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)], include_synonyms=True, include_documentation=False)
    found = side.client.ask(request, 4)
    assert isinstance(found, DescribeConfigsResponse)
    (result,) = found.results
    assert result.error_code == 0, (side.name, result)
    entries = {}
    for one in result.configs:
        synonyms = [(synonym.name, None if one.name in PLACES else synonym.value, synonym.source) for synonym in one.synonyms]
        value = None if one.name in PLACES else one.value
        entries[one.name] = (value, one.config_source, one.is_sensitive, one.read_only, one.config_type, synonyms)
    return entries


def test_changes(both: tuple[Side, Side]) -> None:
    kops, kafka = both
    refused = 0
    for step in CHANGES:
        told = change(kafka, *step)
        assert change(kops, *step) == told, step
        refused += told[0] != 0
        for kind, name in ((BROKER, "1"), (BROKER, ""), (TOPIC, "t"), (GROUP, "g"), (METRICS, "m")):
            # Both answer when the change is committed, and apply it soon after.
            deadline = time.monotonic() + PATIENCE_S
            while (own := description(kops, kind, name)) != (real := description(kafka, kind, name)):
                different = {key: (own.get(key), real.get(key)) for key in own.keys() | real.keys() if own.get(key) != real.get(key)}
                assert time.monotonic() < deadline, (step, kind, name, different)
                time.sleep(0.05)
            # The settings for all nodes come from a map of Scala, whose order kops does not have.
            assert list(own) == list(real) or not name, (step, kind, name)
    assert 10 < refused < len(CHANGES) - 10


INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
TOPIC_ID = bytes(range(16))
SHARE_KEY = "g:AAECAwQFBgcICQoLDA0ODw:0"
WITHOUT_COORDINATOR: tuple[tuple[Message, int], ...] = (
    (FindCoordinatorRequest("g", 0), 3),
    (FindCoordinatorRequest("t", 1), 3),
    (FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "", "h"]), 6),
    (FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 6),
    (FindCoordinatorRequest(key_type=2, coordinator_keys=[SHARE_KEY, "g"]), 6),
    (JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]), 9),
    (OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 1)])]), 9),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]), 9),
    (ConsumerGroupHeartbeatRequest("g", "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]), 1),
    (ShareGroupHeartbeatRequest("g", "m", 0, subscribed_topic_names=["t"]), 1),
    (DescribeGroupsRequest(["g"]), 6),
    (ConsumerGroupDescribeRequest(["g"]), 1),
    (StreamsGroupDescribeRequest(["g"]), 0),
    (ListGroupsRequest(), 5),
    (InitProducerIdRequest("t", 10_000), 5),
    (DescribeTransactionsRequest(["t"]), 0),
    (ListTransactionsRequest(), 2),
    (ReadShareGroupStateRequest("g", [ReadStateData(TOPIC_ID, [PartitionData(0, 0)])]), 0),
    (MetadataRequest([MetadataRequestTopic(name=name) for name in INTERNAL], allow_auto_topic_creation=True), 13),
    (MetadataRequest(None), 13),
)
"""Requests that need an internal topic, and those that list what is there. The topics cannot be created."""


def test_internal_topics_that_cannot_be_made(both: tuple[Side, Side]) -> None:
    """All requests are sent twice: before and after the nodes have tried to create the topics."""
    for number in range(2):
        for request, version in WITHOUT_COORDINATOR:
            kops, kafka = (_answer(side, request, version) for side in both)
            assert kops == kafka, (number, request)
            if isinstance(request, FindCoordinatorRequest) and version == 3:
                assert kops["error_code"] == "COORDINATOR_NOT_AVAILABLE"


def _answer(side: Side, request: Message, version: int) -> Any:
    return {name: value for name, value in side.ask(request, version).items() if name != "cluster_id"}
