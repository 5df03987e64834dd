"""kafka-python on three nodes: records in every codec are read back, and its admin client works."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, NewPartitions, NewTopic
from kafka.errors import TopicAlreadyExistsError

from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.patience import until

PATIENCE_S = 60
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def admin(nodes: KopsNodes) -> Iterator[KafkaAdminClient]:
    """Provide an admin client."""
    client = KafkaAdminClient(bootstrap_servers=nodes.bootstrap)
    yield client
    client.close()


@pytest.fixture
def topic(admin: KafkaAdminClient) -> Iterator[str]:
    """Provide a topic with three partitions on three brokers, and delete it afterwards."""
    name = f"orders-{uuid.uuid4().hex}"
    admin.create_topics([NewTopic(name, 3, 3)], wait_for_metadata=True)
    yield name
    admin.delete_topics([name])


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("settings", [{"acks": 1}, {"enable_idempotence": True}], ids=str)
def test_records(nodes: KopsNodes, topic: str, codec: str | None, settings: dict[str, Any]) -> None:
    producer = KafkaProducer(bootstrap_servers=nodes.bootstrap, compression_type=codec, linger_ms=5, **settings)
    futures = [
        producer.send(topic, b"value%d" % number * 20, b"key%d" % number, [("h", b"1")], number % 3, 1_700_000_000_000 + number)
        for number in range(300)
    ]
    places = [future.get(PATIENCE_S) for future in futures]
    producer.close()
    assert sorted((place.partition, place.offset) for place in places) == [(p, o) for p in range(3) for o in range(100)]
    consumer = KafkaConsumer(bootstrap_servers=nodes.bootstrap, group_id=None, consumer_timeout_ms=PATIENCE_S * 1000)
    consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
    consumer.seek_to_beginning()
    found = {}
    for record in consumer:
        found[record.partition, record.offset] = (record.key, record.value, record.timestamp, list(record.headers))
        if len(found) == 300:
            break
    consumer.close()
    for number, place in enumerate(places):
        expected = (b"key%d" % number, b"value%d" % number * 20, 1_700_000_000_000 + number, [("h", b"1")])
        assert found[place.partition, place.offset] == expected


def test_offsets(nodes: KopsNodes, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=nodes.bootstrap)
    for number in range(10):
        producer.send(topic, b"v", partition=0, timestamp_ms=1_700_000_000_000 + number * 1000)
    producer.flush(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=nodes.bootstrap, group_id=None)
    first = TopicPartition(topic, 0)
    assert consumer.beginning_offsets([first]) == {first: 0} and consumer.end_offsets([first]) == {first: 10}
    found = consumer.offsets_for_times({first: 1_700_000_003_500})[first]
    assert (found.offset, found.timestamp) == (4, 1_700_000_004_000)
    assert consumer.partitions_for_topic(topic) == {0, 1, 2}
    consumer.close()


def test_topics(admin: KafkaAdminClient, topic: str) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, 1, 1)])
    admin.create_partitions({topic: NewPartitions(5)})
    until(lambda: len(admin.describe_topics([topic])[0]["partitions"]), lambda found: found == 5)
    assert topic in admin.list_topics()
    (described,) = admin.describe_topic_partitions([topic])["topics"]
    assert [len(partition["replica_nodes"]) for partition in described["partitions"]] == [3] * 5


def test_cluster(admin: KafkaAdminClient, nodes: KopsNodes, topic: str) -> None:
    cluster = admin.describe_cluster()
    assert [broker["broker_id"] for broker in cluster["brokers"]] == [1, 2, 3]
    features = admin.describe_features()
    assert features["metadata.version"]["finalized"] == (30, 30) and features["kraft.version"]["supported"] == (0, 1)
    quorum = admin.describe_metadata_quorum()
    (partition,) = quorum["topics"][0]["partitions"]
    assert partition["leader_id"] in (1, 2, 3) and len(partition["current_voters"]) == 3
    directories = {told["broker"]: told["log_dirs"] for told in admin.describe_log_dirs()}
    for node_id in nodes.ids:
        (directory,) = directories[node_id]
        assert directory["log_dir"] == str(nodes.log_dir(node_id)) and directory["error_code"] == 0
        assert topic in [one["name"] for one in directory["topics"]]


def test_settings(admin: KafkaAdminClient, topic: str) -> None:
    admin.alter_configs([ConfigResource("TOPIC", topic, {"retention.ms": "77"})])

    def of(kind: str, name: str) -> dict[str, str]:
        told = admin.describe_configs([ConfigResource(kind, name)])[kind.lower()][name]
        return {key: entry["value"] for key, entry in told.items()}

    until(lambda: of("TOPIC", topic), lambda found: found == {"retention.ms": "77"})
    admin.alter_configs([ConfigResource("BROKER", "2", {"message.max.bytes": "2000000"})])
    until(lambda: of("BROKER", "2"), lambda found: found == {"message.max.bytes": "2000000"})
    admin.reset_configs([ConfigResource("BROKER", "2", {"message.max.bytes": None})])
    until(lambda: of("BROKER", "2"), lambda found: found == {})


def test_reassignment_and_election(admin: KafkaAdminClient, topic: str) -> None:
    (described,) = admin.describe_topics([topic])
    wanted = described["partitions"][0]["replica_nodes"][:0:-1]
    admin.alter_partition_reassignments({TopicPartition(topic, 0): wanted})
    until(lambda: admin.describe_topics([topic])[0]["partitions"][0]["replica_nodes"], lambda found: found == wanted)
    until(admin.list_partition_reassignments, lambda found: found == {})
    admin.elect_leaders(0, {topic: [0]}, raise_errors=False)
    until(lambda: admin.describe_topics([topic])[0]["partitions"][0]["leader_id"], lambda found: found == wanted[0])
