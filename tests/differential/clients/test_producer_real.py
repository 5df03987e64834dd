"""kops's producer on three nodes of Apache Kafka 4.3.0: every codec and size, and a leader that is killed while records are sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException

import kops
import kops.aio
from kops.client.errors import InvalidRecordError, RecordTooLargeError
from tests.differential.conftest import RealThree, start_real
from tests.support.kafka.oracle import Oracle
from tests.support.nodes import librdkafka as kafka

pytestmark = pytest.mark.slow
COUNT = 3000


@pytest.fixture(scope="module")
def three(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealThree]:
    """Nodes of their own: one is killed, and readers make `__consumer_offsets`."""
    with start_real(oracle, tmp_path_factory.mktemp("real")) as started:
        yield started


def values(servers: str, topic: str) -> dict[int, list[bytes | None]]:
    """The values of each partition. A leader that changes is asked again."""
    for _ in range(60):
        try:
            found: dict[int, list[bytes | None]] = {}
            for partition, _, _, value in kafka.read_all(servers, topic):
                found.setdefault(partition, []).append(value)
            return found
        except KafkaException as error:
            last = error
    raise last


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def leader_of(servers: str, topic: str) -> int:
    """The leader of the first partition, once there is one."""
    client = kafka.admin(servers)

    def leader() -> int:
        partitions = client.list_topics(timeout=60).topics[topic].partitions
        return partitions[0].leader if partitions else -1

    until(lambda: leader() > 0)
    return leader()


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
