"""kops's consumer where replicas matter, on nodes of kops and of Apache Kafka 4.3.0: it reads from the replica in its rack while there is
one, and notices that an unclean election has cut the log below its position. Kafka's consumer does the same beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from py4j.protocol import Py4JJavaError

import kops
from kops.client.consumer.errors import LogTruncationError
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealCluster
from tests.support.nodes import librdkafka as kafka
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.patience import until

pytestmark = pytest.mark.slow

PATIENCE_S = 90
SETTINGS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "broker.heartbeat.interval.ms": 200,
    "broker.session.timeout.ms": 2000,
    "auto.leader.rebalance.enable": "false",
}
BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


class RackNodes(KopsNodes):
    """Three brokers in the racks r1, r2 and r3. Only the first one is a controller, so the others may be killed."""

    def __init__(self, work: Path) -> None:
        super().__init__(work, 3, settings=SETTINGS)

    def properties(self, node_id: int) -> dict[str, str]:
        found = super().properties(node_id) | {"broker.rack": f"r{node_id}"}
        found["controller.quorum.voters"] = f"1@127.0.0.1:{self.controller_ports[1]}"
        if node_id != 1:
            found |= {"process.roles": "broker", "listeners": found["advertised.listeners"]}
        return found


class Nodes:
    """These nodes as processes of kops, or of Kafka if `real` is given."""

    def __init__(self, nodes: RackNodes, real: RealCluster | None) -> None:
        self._nodes, self._real = nodes, real
        self.bootstrap = nodes.bootstrap

    def kill(self, node_id: int) -> None:
        """Kill a node."""
        if self._real is None:
            self._nodes.kill(node_id)
        else:
            self._real.nodes[node_id - 1].kill()

    def start(self, node_id: int) -> None:
        """Start a node, and wait until it serves."""
        if self._real is None:
            self._nodes.start(node_id)
            self._nodes.wait(node_id)
        else:
            self._real.nodes[node_id - 1].launch()
            self._real.nodes[node_id - 1].wait_ready()


@pytest.fixture(scope="module", params=["kops", "4.3.0"])
def nodes(request: pytest.FixtureRequest, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Provide a cluster of either kind."""
    made = RackNodes(tmp_path_factory.mktemp("racks"))
    if request.param == "kops":
        with made:
            yield Nodes(made, None)
        return
    real = RealCluster(oracle, made.work / "run", [made.prepare(node_id) for node_id in made.ids]).start()
    try:
        yield Nodes(made, real)
    finally:
        real.kill()


def create(nodes: Nodes, topic: str, replicas: list[int], **config: str) -> None:
    client = kafka.admin(nodes.bootstrap)
    for future in client.create_topics([NewTopic(topic, 1, replica_assignment=[replicas], config=config)]).values():
        future.result(PATIENCE_S)


def in_sync(admin: kops.Admin, topic: str, wanted: set[int]) -> bool:
    return {one.id for one in admin.describe_topics([topic])[topic].partitions[0].isr} == wanted


def write(nodes: Nodes, topic: str, values: range) -> None:
    with kops.Producer(bootstrap_servers=nodes.bootstrap, acks="all", delivery_timeout_ms=PATIENCE_S * 1000) as producer:
        for value in values:
            producer.send(topic, b"%d" % value, partition=0)


def requests(consumer: kops.Consumer) -> dict[str, float]:
    """Return how many requests were sent to each node."""
    return {
        dict(name.tags)["node-id"].removeprefix("node-"): value
        for name, value in consumer.metrics().items()
        if (name.name, name.group) == ("request-total", "consumer-node-metrics") and isinstance(value, int | float)
    }


def read(consumer: kops.Consumer, values: range) -> None:
    found: list[int] = []

    def take() -> bool:
        found.extend(int(one.value) for one in consumer.poll(0.2))
        return len(found) >= len(values)

    until(take, told=lambda: f"{values}: {found}")
    assert found == list(values)


def test_the_replica_in_the_rack_is_read(nodes: Nodes) -> None:
    create(nodes, "near", [1, 2])
    with (
        kops.Admin(bootstrap_servers=nodes.bootstrap) as admin,
        kops.Producer(bootstrap_servers=nodes.bootstrap, acks="all") as producer,
        kops.Consumer(bootstrap_servers=nodes.bootstrap, client_rack="r2", auto_offset_reset="earliest", metadata_max_age_ms=1000) as near,
        kops.Consumer(bootstrap_servers=nodes.bootstrap, client_rack="r3", auto_offset_reset="earliest") as far,
    ):
        for consumer in (near, far):
            consumer.assign([kops.TopicPartition("near", 0)])
        write(nodes, "near", range(20))
        read(near, range(20))
        read(far, range(20))
        before = {consumer: requests(consumer) for consumer in (near, far)}
        for number in range(20, 40):
            producer.send("near", b"%d" % number, partition=0).result(PATIENCE_S)
            read(near, range(number, number + 1))
            read(far, range(number, number + 1))
        fetches = {
            consumer: {node: count - before[consumer].get(node, 0.0) for node, count in requests(consumer).items()}
            for consumer in (near, far)
        }
        assert fetches[near]["2"] > 15, fetches[near]
        assert fetches[near]["1"] < fetches[near]["2"], fetches[near]  # the leader is asked again after metadata.max.age.ms
        assert fetches[far]["1"] > 15, fetches[far]
        assert fetches[far].get("2", 0.0) < 5, fetches[far]  # at most for metadata
        nodes.kill(2)
        until(lambda: in_sync(admin, "near", {1}))
        write(nodes, "near", range(40, 60))
        read(near, range(40, 60))
        nodes.start(2)
        until(lambda: in_sync(admin, "near", {1, 2}))


def java_consumer(oracle: Oracle, nodes: Nodes, reset: str) -> Any:
    settings = {"bootstrap.servers": nodes.bootstrap, "auto.offset.reset": reset, "key.deserializer": BYTES, "value.deserializer": BYTES}
    return oracle.jvm.org.apache.kafka.clients.consumer.KafkaConsumer(oracle.properties(settings))


def test_a_log_that_was_cut_below_the_position(nodes: Nodes, oracle: Oracle) -> None:
    """Node 3 lacks what node 2 alone has acknowledged, and becomes the leader all the same."""
    create(nodes, "cut", [2, 3], **{"unclean.leader.election.enable": "true", "min.insync.replicas": "1"})
    key = kops.TopicPartition("cut", 0)
    place = oracle.jvm.org.apache.kafka.common.TopicPartition("cut", 0)
    pause = oracle.jvm.java.time.Duration.ofMillis(200)
    java = {reset: java_consumer(oracle, nodes, reset) for reset in ("none", "earliest")}
    ours = {reset: kops.Consumer(bootstrap_servers=nodes.bootstrap, auto_offset_reset=reset) for reset in ("none", "earliest")}
    try:
        with kops.Admin(bootstrap_servers=nodes.bootstrap) as admin:
            write(nodes, "cut", range(10))
            until(lambda: in_sync(admin, "cut", {2, 3}))
            nodes.kill(3)
            until(lambda: in_sync(admin, "cut", {2}))
            write(nodes, "cut", range(10, 20))
            for consumer in ours.values():
                consumer.assign([key])
                consumer.seek(key, 0)
                read(consumer, range(20))
            for other in java.values():
                other.assign(oracle.jvm.java.util.List.of(place))
                other.seek(place, 0)

                def has_all(other: Any = other) -> bool:
                    other.poll(pause)
                    return bool(other.position(place) == 20)

                until(has_all)
            nodes.kill(2)
            nodes.start(3)
            until(lambda: in_sync(admin, "cut", {3}))
        write(nodes, "cut", range(100, 105))
        error = until(lambda: truncation(ours["none"]))
        assert error is not None
        assert error.offsets == {key: 20}
        assert [one.offset for one in error.divergent_offsets.values()] == [10]
        theirs = until(lambda: java_truncation(java["none"], pause))
        assert theirs.offsetOutOfRangePartitions().get(place) == 20
        assert theirs.divergentOffsets().get(place).offset() == 10
        read(ours["earliest"], range(100, 105))
        values: list[int] = []

        def take() -> bool:
            records = java["earliest"].poll(pause).iterator()
            while records.hasNext():
                values.append(int(bytes(records.next().value())))
            return len(values) >= 5

        until(take, told=lambda: values)
        assert values == list(range(100, 105))
        nodes.start(2)
    finally:
        for each in (*ours.values(), *java.values()):
            each.close()


def truncation(consumer: kops.Consumer) -> LogTruncationError | None:
    """Poll. Return the error of a truncated log."""
    try:
        assert not consumer.poll(0.2)
    except LogTruncationError as error:
        return error
    return None


def java_truncation(consumer: Any, pause: Any) -> Any:
    """Poll Kafka's consumer. Return its LogTruncationException."""
    try:
        assert consumer.poll(pause).isEmpty()
    except Py4JJavaError as error:
        assert error.java_exception.getClass().getSimpleName() == "LogTruncationException", error.java_exception.toString()
        return error.java_exception
    return None
