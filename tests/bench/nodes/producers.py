"""Compares the producers of kops, confluent-kafka, aiokafka and kafka-python on the same node of kops, in records per CPU second.

`python -m tests.bench.nodes.producers [--records N] [--rounds N] [--batch-size BYTES]`. Each client runs in a process of its own. It
sends N records of 100 bytes and of 1 KiB without keys, with acks=all (idempotent, unless the client's default is another) and with acks=1,
and flushes. Its CPU time is that of all its threads, from the first record after a warm-up to the end of the flush. The table shows the
median of the rounds, and how many times more records kops sends. Without `--batch-size`, each client has its default: 16 KiB, and
librdkafka 1 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import kops
import kops.aio

CLIENTS = ("kops", "kops.aio", "confluent-kafka", "aiokafka", "kafka-python")
SIZES = (100, 1024)


def cpu_s() -> float:
    """Return the CPU time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measured(send: Callable[[], object]) -> tuple[float, float]:
    """Run a function and return its CPU seconds and wall seconds."""
    cpu, wall = cpu_s(), time.monotonic()
    send()
    return cpu_s() - cpu, time.monotonic() - wall


def run_kops(servers: str, topic: str, count: int, size: int, acks: str, batch_size: int | None) -> tuple[float, float]:
    """Send with `kops.Producer`."""
    value = b"x" * size
    with kops.Producer(bootstrap_servers=servers, acks=acks, **({} if batch_size is None else {"batch_size": batch_size})) as producer:
        producer.send(topic, value).result(60)

        def send() -> None:
            for _ in range(count):
                producer.send(topic, value)
            producer.flush()

        return measured(send)


async def run_kops_aio(servers: str, topic: str, count: int, size: int, acks: str, batch_size: int | None) -> tuple[float, float]:
    """Send with `kops.aio.Producer`."""
    value = b"x" * size
    sizes = {} if batch_size is None else {"batch_size": batch_size}
    async with kops.aio.Producer(bootstrap_servers=servers, acks=acks, **sizes) as producer:
        await producer.send_and_wait(topic, value)
        cpu, wall = cpu_s(), time.monotonic()
        for _ in range(count):
            await producer.send(topic, value)
        await producer.flush()
        return cpu_s() - cpu, time.monotonic() - wall


def run_confluent(servers: str, topic: str, count: int, size: int, acks: str, batch_size: int | None) -> tuple[float, float]:
    """Send with librdkafka."""
    from confluent_kafka import Producer

    value = b"x" * size
    sizes = {} if batch_size is None else {"batch.size": batch_size}
    producer = Producer({"bootstrap.servers": servers, "acks": acks, "enable.idempotence": acks == "all", "linger.ms": 5, **sizes})
    producer.produce(topic, value)
    producer.flush(60)

    def send() -> None:
        for _ in range(count):
            while True:
                try:
                    producer.produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.flush(60)

    return measured(send)


def run_kafka_python(servers: str, topic: str, count: int, size: int, acks: str, batch_size: int | None) -> tuple[float, float]:
    """Send with kafka-python."""
    from kafka import KafkaProducer

    value = b"x" * size
    given = acks if acks == "all" else int(acks)
    producer = KafkaProducer(bootstrap_servers=servers, acks=given, linger_ms=5, batch_size=batch_size or 16384)
    producer.send(topic, value).get(60)

    def send() -> None:
        for _ in range(count):
            producer.send(topic, value)
        producer.flush(60)

    found = measured(send)
    producer.close()
    return found


async def run_aiokafka(servers: str, topic: str, count: int, size: int, acks: str, batch_size: int | None) -> tuple[float, float]:
    """Send with aiokafka."""
    from aiokafka import AIOKafkaProducer

    value = b"x" * size
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        acks=acks if acks == "all" else int(acks),
        linger_ms=5,
        enable_idempotence=acks == "all",
        max_batch_size=batch_size or 16384,
    )
    await producer.start()
    await producer.send_and_wait(topic, value)
    cpu, wall = cpu_s(), time.monotonic()
    for _ in range(count):
        await producer.send(topic, value)
    await producer.flush()
    found = cpu_s() - cpu, time.monotonic() - wall
    await producer.stop()
    return found


def run(client: str, servers: str, topic: str, count: int, size: int, acks: str, batch_size: int | None) -> tuple[float, float]:
    """Send with one client."""
    arguments = (servers, topic, count, size, acks, batch_size)
    if client == "kops":
        return run_kops(*arguments)
    if client == "kops.aio":
        return asyncio.run(run_kops_aio(*arguments))
    if client == "confluent-kafka":
        return run_confluent(*arguments)
    if client == "aiokafka":
        return asyncio.run(run_aiokafka(*arguments))
    return run_kafka_python(*arguments)


def in_a_process(client: str, servers: str, topic: str, count: int, size: int, acks: str, batch_size: int | None) -> float:
    """Run a client in a process of its own and return its records per CPU second."""
    command = [sys.executable, "-m", "tests.bench.nodes.producers", "--one", client, servers, topic, str(count), str(size), acks]
    command += [] if batch_size is None else ["--batch-size", str(batch_size)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return count / float(ran.stdout.split()[0])


def compare(count: int, rounds: int, batch_size: int | None) -> None:
    """Print a table for each size and acks."""
    with kops.Cluster(1, topics=["bench:3"]) as cluster:
        for size in SIZES:
            for acks in ("all", "1"):
                rates: dict[str, list[float]] = {client: [] for client in CLIENTS}
                for _ in range(rounds):
                    for client, found in rates.items():
                        found.append(in_a_process(client, cluster.bootstrap_servers, "bench", count, size, acks, batch_size))
                medians = {client: statistics.median(found) for client, found in rates.items()}
                print(f"{count} records of {size} bytes, acks={acks}")
                for client, rate in medians.items():
                    print(f"  {client:16} {rate:10,.0f} records a CPU second   kops/it {medians['kops'] / rate:5.2f}", flush=True)


def main() -> None:
    """Run the comparison, or one of its measured processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--one", nargs=6, metavar=("CLIENT", "SERVERS", "TOPIC", "COUNT", "SIZE", "ACKS"))
    given = parser.parse_args()
    if given.one:
        client, servers, topic, count, size, acks = given.one
        print(*run(client, servers, topic, int(count), int(size), acks, given.batch_size))
    else:
        compare(given.records, given.rounds, given.batch_size)


if __name__ == "__main__":
    main()
