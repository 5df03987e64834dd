"""Compares the consumers of kops, confluent-kafka, aiokafka and kafka-python on the same node of kops, in records per CPU second.

`python -m tests.bench.nodes.consumers [--records N] [--rounds N]`. Each client runs in a process of its own and reads N records of 100
bytes and of 1 KiB from three partitions. It checks checksums as Kafka's consumer does. Its CPU time is that of all its threads, from the
first record to the last. The table shows the median of the rounds, and how many times more records kops reads.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys

import kops
import kops.aio

CLIENTS = ("kops", "kops.aio", "confluent-kafka", "aiokafka", "kafka-python")
SIZES = (100, 1024)
PARTITIONS = 3


def cpu_s() -> float:
    """Return the CPU time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run_kops(servers: str, topic: str, count: int) -> float:
    """Read with `kops.Consumer`."""
    with kops.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, index) for index in range(PARTITIONS)])
        left = count
        while not (records := consumer.poll(1)):
            continue
        cpu = cpu_s()
        while left > 0:
            for record in records:
                assert record.value
                left -= 1
            records = consumer.poll(1) if left > 0 else records
        return cpu_s() - cpu


async def run_kops_aio(servers: str, topic: str, count: int) -> float:
    """Read with `kops.aio.Consumer`."""
    async with kops.aio.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, index) for index in range(PARTITIONS)])
        left = count
        while not (records := await consumer.poll(1)):
            continue
        cpu = cpu_s()
        while left > 0:
            for record in records:
                assert record.value
                left -= 1
            records = await consumer.poll(1) if left > 0 else records
        return cpu_s() - cpu


def run_confluent(servers: str, topic: str, count: int) -> float:
    """Read with librdkafka, 500 records at a time."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False, "check.crcs": True})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    left = count
    while not (records := consumer.consume(500, 1)):
        continue
    cpu = cpu_s()
    while left > 0:
        for record in records:
            assert record.value()
            left -= 1
        records = consumer.consume(500, 1) if left > 0 else records
    found = cpu_s() - cpu
    consumer.close()
    return found


def run_kafka_python(servers: str, topic: str, count: int) -> float:
    """Read with kafka-python."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
    left = count
    while not (records := consumer.poll(1000)):
        continue
    cpu = cpu_s()
    while left > 0:
        for some in records.values():
            for record in some:
                assert record.value
                left -= 1
        records = consumer.poll(1000) if left > 0 else records
    found = cpu_s() - cpu
    consumer.close()
    return found


async def run_aiokafka(servers: str, topic: str, count: int) -> float:
    """Read with aiokafka."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False)
    await consumer.start()
    consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
    left = count
    while not (records := await consumer.getmany(timeout_ms=1000, max_records=500)):
        continue
    cpu = cpu_s()
    while left > 0:
        for some in records.values():
            for record in some:
                assert record.value
                left -= 1
        records = await consumer.getmany(timeout_ms=1000, max_records=500) if left > 0 else records
    found = cpu_s() - cpu
    await consumer.stop()
    return found


def run(client: str, servers: str, topic: str, count: int) -> float:
    """Read with one client and return its CPU seconds."""
    if client == "kops":
        return run_kops(servers, topic, count)
    if client == "kops.aio":
        return asyncio.run(run_kops_aio(servers, topic, count))
    if client == "confluent-kafka":
        return run_confluent(servers, topic, count)
    if client == "aiokafka":
        return asyncio.run(run_aiokafka(servers, topic, count))
    return run_kafka_python(servers, topic, count)


def in_a_process(client: str, servers: str, topic: str, count: int) -> float:
    """Run a client in a process of its own and return its records per CPU second."""
    command = [sys.executable, "-m", "tests.bench.nodes.consumers", "--one", client, servers, topic, str(count)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return count / float(ran.stdout.split()[0])


def compare(count: int, rounds: int) -> None:
    """Print a table for each size."""
    with kops.Cluster(1, topics=[f"bench{size}:{PARTITIONS}" for size in SIZES]) as cluster:
        servers = cluster.bootstrap_servers
        for size in SIZES:
            topic = f"bench{size}"
            with kops.Producer(bootstrap_servers=servers) as producer:
                for _ in range(count + count // 10):
                    producer.send(topic, b"x" * size)
            rates: dict[str, list[float]] = {client: [] for client in CLIENTS}
            for _ in range(rounds):
                for client, found in rates.items():
                    found.append(in_a_process(client, servers, topic, count))
            medians = {client: statistics.median(found) for client, found in rates.items()}
            print(f"{count} records of {size} bytes")
            for client, rate in medians.items():
                print(f"  {client:16} {rate:10,.0f} records a CPU second   kops/it {medians['kops'] / rate:5.2f}", flush=True)


def main() -> None:
    """Run the comparison, or one of its measured processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=4, metavar=("CLIENT", "SERVERS", "TOPIC", "COUNT"))
    given = parser.parse_args()
    if given.one:
        client, servers, topic, count = given.one
        print(run(client, servers, topic, int(count)))
    else:
        compare(given.records, given.rounds)


if __name__ == "__main__":
    main()
