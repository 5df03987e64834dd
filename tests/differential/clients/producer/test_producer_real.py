"""kops's producer on three nodes of Apache Kafka 4.3.0: every codec and size, transactions, and leaders that are killed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

import kops
import kops.aio
from kops.client.errors import InvalidRecordError, KafkaError, KafkaTimeoutError, ProducerFencedError, RecordTooLargeError
from kops.client.network import NetworkClient
from kops.protocol.connections.node_versions import FinalizedFeatures
from tests.differential.conftest import RealThree, start_real
from tests.support.kafka.oracle import Oracle
from tests.support.nodes import librdkafka as kafka
from tests.support.nodes.copying import copy_in_transactions
from tests.support.patience import until

pytestmark = pytest.mark.slow
COUNT = 3000


@pytest.fixture(scope="module")
def three(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealThree]:
    """Provide separate nodes: one is killed, and readers make `__consumer_offsets`."""
    coordinators = {
        "transaction.state.log.num.partitions": 3,
        "transaction.state.log.replication.factor": 3,
        "transaction.state.log.min.isr": 2,
        "offsets.topic.num.partitions": 3,
        "offsets.topic.replication.factor": 3,
    }
    with start_real(oracle, tmp_path_factory.mktemp("real"), coordinators) as started:
        yield started


def values(servers: str, topic: str) -> dict[int, list[bytes | None]]:
    """Return the values of each partition. Retry while a leader changes."""
    for _ in range(60):
        try:
            found: dict[int, list[bytes | None]] = {}
            for partition, _, _, value in kafka.read_all(servers, topic):
                found.setdefault(partition, []).append(value)
            return found
        except KafkaException as error:
            last = error
    raise last


def leader_of(servers: str, topic: str) -> int:
    """Return the leader of the first partition, as soon as there is one."""
    client = kafka.admin(servers)

    def leader() -> int:
        found = client.list_topics(timeout=60).topics.get(topic)  # another broker may not know the topic yet
        return found.partitions[0].leader if found is not None and found.partitions else -1

    known: list[int] = []

    def is_known() -> bool:
        known.append(leader())
        return known[-1] > 0

    until(is_known)
    return known[-1]


def delete(servers: str, *topics: str) -> None:
    """Delete topics, and wait until they are gone."""
    client = kafka.admin(servers)
    for future in client.delete_topics(list(topics)).values():
        future.result()
    until(lambda: not set(topics) & set(kafka.topics(servers)))


def test_codecs_sizes_and_errors(three: RealThree) -> None:
    servers = three.nodes.bootstrap
    kafka.create_topic(servers, "codecs", 2, 3)
    kafka.create_topic(servers, "narrow", 1, 1, {"max.message.bytes": "3000", "cleanup.policy": "compact"})
    sent = 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        with kops.Producer(bootstrap_servers=servers, compression_type=codec, linger_ms=5) as producer:
            futures = [producer.send("codecs", b"%d" % index * 40, key=b"%d" % index, headers={"h": b"x"}) for index in range(300)]
        assert all(future.result(0).offset >= 0 for future in futures)
        sent += len(futures)
    assert sum(map(len, values(servers, "codecs").values())) == sent
    with kops.Producer(bootstrap_servers=servers, linger_ms=50) as producer:
        # Together they are too large for the topic: the batch is split until its parts fit.
        parts = [producer.send("narrow", b"%d" % index * 400, key=b"k%d" % index) for index in range(20)]
        assert [part.result(60).offset for part in parts] == list(range(20))
        assert isinstance(producer.send("narrow", b"x" * 4000, key=b"k").error(60), RecordTooLargeError)
        assert isinstance(producer.send("narrow", b"no key").error(60), InvalidRecordError)
        assert producer.send("narrow", b"x", key=b"k").result(60).offset == 20

    async def main() -> int:
        async with kops.aio.Producer(bootstrap_servers=servers) as producer:
            return (await producer.send_and_wait("narrow", b"y", key=b"k")).offset

    assert asyncio.run(main()) == 21
    delete(servers, "codecs", "narrow")


def test_in_order_and_once_although_a_leader_is_killed(three: RealThree) -> None:
    servers = three.nodes.bootstrap
    kafka.create_topic(servers, "killed", 1, 3, {"min.insync.replicas": "1"})
    leader = leader_of(servers, "killed")
    node = next(node for node in three.cluster.nodes if node.properties.stem == str(leader))
    with kops.Producer(bootstrap_servers=servers, linger_ms=0, batch_size=500) as producer:
        futures = []
        for index in range(COUNT):
            futures.append(producer.send("killed", b"%d" % index))
            if index == COUNT // 3:
                futures[0].result(60)
                node.kill()
        producer.flush(120)
        node.launch()
        node.wait_ready()
        assert [future.error(0) for future in futures if future.error(0) is not None] == []
    assert values(servers, "killed") == {0: [b"%d" % index for index in range(COUNT)]}
    delete(servers, "killed")


def committed(servers: str, topic: str, partitions: int) -> list[str]:
    """Return the values that a reader of committed records gets."""
    return kafka.values_to_end(servers, topic, range(partitions))


@pytest.mark.parametrize("version", [1, 2])
def test_transactions(three: RealThree, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction writes all or nothing, with offsets and fencing. A client that does not see the feature uses version 1."""
    if version == 1:
        monkeypatch.setattr(NetworkClient, "features", lambda self: FinalizedFeatures(-1, {}))
    servers, topic, group = three.nodes.bootstrap, f"txn-{version}", f"group-{version}"
    kafka.create_topic(servers, topic, 3, 3)
    settings = {"bootstrap.servers": servers, "transactional.id": topic, "value.serializer": "string"}
    with kops.Producer(settings) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            for partition in range(3):
                producer.send(topic, f"{number}-{partition}", partition=partition)
            producer.send_offsets_to_transaction({(topic, 0): number}, group)
            if number % 2:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        assert producer._core.transactions is not None
        assert producer._core.transactions.is_version_2 is (version == 2)
        producer.begin_transaction()
        producer.send(topic, "fenced").result(60)
        with kops.Producer(settings) as second:
            second.init_transactions()
            with second.transaction():
                second.send(topic, "second")
            with pytest.raises(ProducerFencedError):
                producer.commit_transaction()
    expected = sorted(["second", *(f"{number}-{partition}" for number in (0, 2, 4) for partition in range(3))])
    until(lambda: committed(servers, topic, 3) == expected)  # a commit is acknowledged before all partitions have its marker
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    until(lambda: [one.offset for one in consumer.committed([TopicPartition(topic, 0)], timeout=60)] == [4])
    consumer.close()
    delete(servers, topic)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_records_are_read_and_written_in_one_transaction(three: RealThree, protocol: str) -> None:
    servers, source = three.nodes.bootstrap, f"read-{protocol}"
    target, texts = f"written-{protocol}", [f"{index}" for index in range(20)]
    for topic in (source, target):
        kafka.create_topic(servers, topic, 1, 3)
    with kops.Producer(bootstrap_servers=servers, value_serializer="string") as producer:
        for text in texts:
            producer.send(source, text)
    assert copy_in_transactions(servers, source, target, len(texts), protocol) >= 4
    until(lambda: committed(servers, target, 1) == sorted(texts))
    consumer = Consumer({"bootstrap.servers": servers, "group.id": source, "log_level": 0})
    until(lambda: [one.offset for one in consumer.committed([TopicPartition(source, 0)], timeout=60)] == [len(texts)])
    consumer.close()
    delete(servers, source, target)


def test_transactions_are_whole_although_a_leader_is_killed(three: RealThree) -> None:
    servers, topic, count = three.nodes.bootstrap, "paid", 40
    kafka.create_topic(servers, topic, 3, 3, {"min.insync.replicas": "1"})
    leader = leader_of(servers, topic)
    node = next(node for node in three.cluster.nodes if node.properties.stem == str(leader))
    with kops.Producer(bootstrap_servers=servers, transactional_id=topic, value_serializer="string", linger_ms=0) as producer:
        producer.init_transactions()
        done, number = 0, 0
        while done < count:
            number += 1
            try:
                with producer.transaction():
                    for index in range(9):
                        producer.send(topic, f"{number:03d}-{index}", partition=index % 3)
                    if number == 10:
                        node.kill()
            except KafkaTimeoutError:
                producer.commit_transaction()  # goes on waiting for the new leaders
            except KafkaError as error:
                assert error.abortable, error
                continue
            done += 1
    node.launch()
    node.wait_ready()
    until(lambda: len(committed(servers, topic, 3)) == 9 * done)
    seen = committed(servers, topic, 3)
    numbers = sorted({value[:3] for value in seen})
    assert len(numbers) == done
    assert seen == [f"{number}-{index}" for number in numbers for index in range(9)]
    delete(servers, topic)
