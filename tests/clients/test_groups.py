"""Groups of librdkafka, kafka-python and aiokafka on three nodes.

Two members share a topic. One leaves, and the next one continues at the committed offsets.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.patience import until

PATIENCE_S = 60
PARTITIONS = 4


@pytest.fixture
def topic(nodes: KopsNodes) -> str:
    """Provide a topic with ten records in each of its partitions."""
    name = f"shared-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(PATIENCE_S)
    write(nodes, name, range(40))
    return name


def write(nodes: KopsNodes, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka(nodes: KopsNodes, topic: str, protocol: str) -> None:
    def join() -> Consumer:
        settings = {"bootstrap.servers": nodes.bootstrap, "group.id": topic, "auto.offset.reset": "earliest", "log_level": 0}
        member = Consumer({**settings, "group.protocol": protocol, "enable.auto.commit": False})
        member.subscribe([topic])
        return member

    def take(member: Consumer, found: list[int]) -> bool:
        for message in member.consume(100, 0.1):
            assert message.error() is None
            found.append(int(message.value() or b""))
        return True

    first, found = join(), list[int]()
    until(lambda: take(first, found) and len(found) == 40, told=lambda: found)
    first.commit(asynchronous=False)
    second = join()
    until(lambda: all(take(one, found) for one in (first, second)) and [len(one.assignment()) for one in (first, second)] == [2, 2])
    write(nodes, topic, range(40, 80))
    until(lambda: all(take(one, found) for one in (first, second)) and len(found) == 80, told=lambda: found)
    assert sorted(found) == list(range(80))
    for member in (first, second):
        member.commit(asynchronous=False)
        member.close()
    third, again = join(), list[int]()
    until(lambda: take(third, again) and len(third.assignment()) == 4)
    write(nodes, topic, range(80, 84))
    until(lambda: take(third, again) and len(again) == 4, told=lambda: again)
    assert sorted(again) == list(range(80, 84))
    third.close()


def test_kafka_python(nodes: KopsNodes, topic: str) -> None:
    def join() -> KafkaConsumer:
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 200}
        return KafkaConsumer(topic, bootstrap_servers=nodes.bootstrap, group_id=topic, **settings)

    def take(member: KafkaConsumer) -> bool:
        # kafka-python 3.0.12 throws away a join that ends between two calls of poll(). The leader then joins once more, which begins the
        # group anew, or the member never gets its partitions, on Apache Kafka as well. So it joins within one call.
        for records in member.poll(1000 * PATIENCE_S).values():
            found.extend(int(record.value) for record in records)
        return True

    def take_while(shared: threading.Event, member: KafkaConsumer) -> bool:
        while not shared.is_set():
            take(member)
        return True

    def share(members: list[KafkaConsumer], shares: list[int], numbers: range) -> None:
        shared = threading.Event()
        with ThreadPoolExecutor(len(members)) as threads:
            ended = [threads.submit(take_while, shared, one) for one in members]
            until(lambda: [len(one.assignment()) for one in members] == shares)
            shared.set()
            write(nodes, topic, numbers)  # the calls of poll() return
            assert all(one.result() for one in ended)

    first, found = join(), list[int]()
    until(lambda: take(first) and len(found) == 40, told=lambda: found)
    first.commit()
    second = join()
    share([first, second], [2, 2], range(40, 44))
    first.commit()
    second.commit()
    first.close()
    share([second], [4], range(44, 48))
    until(lambda: len(found) >= 48 or not take(second), told=lambda: found)
    assert sorted(found) == list(range(48))
    second.close()


@pytest.mark.slow
def test_aiokafka(nodes: KopsNodes, topic: str) -> None:
    async def live() -> None:
        async def join() -> AIOKafkaConsumer:
            settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 200}
            member = AIOKafkaConsumer(topic, bootstrap_servers=nodes.bootstrap, group_id=topic, **settings)
            await member.start()
            return member

        async def take(member: AIOKafkaConsumer, count: int) -> list[int]:
            found: list[int] = []
            while len(found) < count:
                found += [int(one.value) for records in (await member.getmany(timeout_ms=100)).values() for one in records]
            return found

        first = await join()
        assert sorted(await take(first, 40)) == list(range(40))
        await first.commit()
        second = await join()
        while [len(one.assignment()) for one in (first, second)] != [2, 2]:
            await asyncio.sleep(0.05)
        write(nodes, topic, range(40, 60))
        assert sorted(await take(first, 10) + await take(second, 10)) == list(range(40, 60))
        await first.commit()
        await first.stop()
        await second.commit()
        await second.stop()
        third = await join()
        write(nodes, topic, range(60, 64))
        assert sorted(await take(third, 4)) == list(range(60, 64))
        await third.stop()

    asyncio.run(asyncio.wait_for(live(), PATIENCE_S))
