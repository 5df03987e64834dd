"""kops's consumer on three nodes of Apache Kafka 4.3.0: codecs, transactions, groups with members of librdkafka, static members."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

import kops
import kops.aio
from kops.client.consumer.errors import FencedInstanceIdError
from tests.differential.conftest import RealThree, start_real
from tests.support.kafka.oracle import Oracle
from tests.support.nodes import librdkafka as kafka
from tests.support.patience import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def three(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealThree]:
    """Provide separate nodes, because groups make `__consumer_offsets`."""
    with start_real(oracle, tmp_path_factory.mktemp("real")) as started:
        yield started


@pytest.fixture
def topic(three: RealThree) -> str:
    """Provide a topic with four partitions and 100 records."""
    name = f"consumer-{uuid.uuid4().hex[:8]}"
    servers = three.nodes.bootstrap
    client = kafka.admin(servers)
    for future in client.create_topics([confluent_kafka.admin.NewTopic(name, 4, 3)]).values():
        future.result()
    for codec in ("none", "gzip", "lz4", "zstd"):
        with kops.Producer(bootstrap_servers=servers, compression_type=codec) as producer:
            for index in range(25):
                producer.send(name, b"%s-%d" % (codec.encode(), index), partition=index % 4, headers=[("n", b"%d" % index)])
    return name


def test_partitions_positions_and_transactions(three: RealThree, topic: str) -> None:
    servers = three.nodes.bootstrap
    keys = [kops.TopicPartition(topic, index) for index in range(4)]
    writer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": topic})
    writer.init_transactions(60)
    for value, ends in ((b"committed", writer.commit_transaction), (b"aborted", writer.abort_transaction)):
        writer.begin_transaction()
        writer.produce(topic, value, partition=0)
        writer.flush(60)
        ends(60)
    for isolation, extra in (("read_committed", [b"committed"]), ("read_uncommitted", [b"committed", b"aborted"])):
        with kops.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level=isolation) as consumer:
            consumer.assign(keys)
            found: list[kops.ConsumerRecord] = []
            ends = consumer.end_offsets(keys)
            deadline = time.monotonic() + 60
            # The last fetch may have a transaction marker only, and then `poll` returns nothing.
            while {key: consumer.position(key) for key in keys} != ends:
                assert time.monotonic() < deadline
                found += consumer.poll(0.2)
            assert [one.value for one in found if not one.headers] == extra
            assert len(found) == 100 + len(extra)
            assert found[0].leader_epoch == 0
            assert consumer.beginning_offsets(keys) == dict.fromkeys(keys, 0)
            consumer.seek(keys[1], kops.OffsetAndMetadata(5, "", 0))
            assert until(lambda: consumer.poll(0.2))[0].offset == 5  # called at once


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_with_other_clients(three: RealThree, topic: str, protocol: str) -> None:
    """A member of librdkafka and one of kops share the partitions. librdkafka sees what kops commits."""
    servers, group = three.nodes.bootstrap, f"{topic}-{protocol}"
    settings: dict[str, Any] = {"bootstrap_servers": servers, "group_id": group, "auto_offset_reset": "earliest"}
    other = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol})
    seen: set[bytes] = set()
    with kops.Consumer(**settings, group_protocol=protocol) as consumer:
        consumer.subscribe([topic])
        while len(seen) < 100:
            seen |= {one.value for one in until(lambda: consumer.poll(0.2))}
        other.subscribe([topic])
        until(lambda: (consumer.poll(0.1), other.poll(0.1)) and len(consumer.assignment()) == len(other.assignment()) == 2)
        consumer.commit()
        owned = sorted(consumer.assignment())
        found = consumer.committed(owned)
    partitions = [confluent_kafka.TopicPartition(key.topic, key.partition) for key in owned]
    assert [one.offset for one in other.committed(partitions, 60)] == [one.offset for one in found.values() if one is not None]
    until(lambda: other.poll(0.1) or len(other.assignment()) == 4)  # the member of kops has left
    other.close()

    async def main() -> None:
        async with kops.aio.Consumer(**settings, group_protocol=protocol) as again:
            again.subscribe([topic])
            while not again.assignment():
                assert await again.poll(0.2) == []  # every record was committed
            assert set((await again.committed(owned)).values()) == set(found.values())

    asyncio.run(asyncio.wait_for(main(), 120))


def test_a_static_member_is_replaced(three: RealThree, topic: str) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": three.nodes.bootstrap, "group_id": f"{topic}-static", "group_instance_id": "one"}
    with kops.Consumer(**settings, heartbeat_interval_ms=100) as first, kops.Consumer(**settings) as second:
        first.subscribe([topic])
        until(lambda: (first.poll(0.1) and False) or len(first.assignment()) == 4)
        member = first.group_metadata().member_id
        second.subscribe([topic])
        until(lambda: (second.poll(0.1) and False) or len(second.assignment()) == 4)
        assert second.group_metadata().member_id != member
        with pytest.raises(FencedInstanceIdError):
            until(lambda: first.poll(0.1) and False)
        second.close(membership="leave")
