"""Compares how long kops, confluent-kafka, aiokafka and kafka-python take for one record that is sent and acknowledged.

`python -m tests.bench.nodes.single_sends [--records N] [--rounds N] [--acks all]`. Each client runs in a process of its own, on the same
node of kops. It sends N records of 100 bytes, one after the other, without a linger time, and waits for each acknowledgement. The table
shows the p50 of each round.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import kops
import kops.aio
from tests.bench.nodes.producers import CLIENTS

WARM_UP = 100


def timed(send: Callable[[], object], count: int) -> list[float]:
    """Return the seconds of each call, without those of the warm-up."""
    times = []
    for _ in range(count + WARM_UP):
        started = time.perf_counter()
        send()
        times.append(time.perf_counter() - started)
    return times[WARM_UP:]


async def timed_awaits(send: Callable[[], Awaitable[object]], count: int) -> list[float]:
    """Return the seconds of each await, without those of the warm-up."""
    times = []
    for _ in range(count + WARM_UP):
        started = time.perf_counter()
        await send()
        times.append(time.perf_counter() - started)
    return times[WARM_UP:]


def run_kops(servers: str, count: int, acks: str, value: bytes) -> list[float]:
    """Send with `kops.Producer`."""
    with kops.Producer(bootstrap_servers=servers, acks=acks, linger_ms=0) as producer:
        return timed(lambda: producer.send("bench", value).result(60), count)


async def run_kops_aio(servers: str, count: int, acks: str, value: bytes) -> list[float]:
    """Send with `kops.aio.Producer`."""
    async with kops.aio.Producer(bootstrap_servers=servers, acks=acks, linger_ms=0) as producer:
        return await timed_awaits(lambda: producer.send_and_wait("bench", value), count)


def run_confluent(servers: str, count: int, acks: str, value: bytes) -> list[float]:
    """Send with librdkafka."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "acks": acks, "enable.idempotence": acks == "all", "linger.ms": 0})

    def send() -> None:
        producer.produce("bench", value)
        producer.flush(60)

    return timed(send, count)


def run_kafka_python(servers: str, count: int, acks: str, value: bytes) -> list[float]:
    """Send with kafka-python."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers, acks=acks if acks == "all" else int(acks), linger_ms=0)
    found = timed(lambda: producer.send("bench", value).get(60), count)
    producer.close()
    return found


async def run_aiokafka(servers: str, count: int, acks: str, value: bytes) -> list[float]:
    """Send with aiokafka."""
    from aiokafka import AIOKafkaProducer

    given = acks if acks == "all" else int(acks)
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks=given, linger_ms=0, enable_idempotence=acks == "all")
    await producer.start()
    found = await timed_awaits(lambda: producer.send_and_wait("bench", value), count)
    await producer.stop()
    return found


def run(client: str, servers: str, count: int, acks: str) -> float:
    """Send with one client and return the p50 in ms."""
    value = b"x" * 100
    if client == "kops":
        found = run_kops(servers, count, acks, value)
    elif client == "kops.aio":
        found = asyncio.run(run_kops_aio(servers, count, acks, value))
    elif client == "confluent-kafka":
        found = run_confluent(servers, count, acks, value)
    elif client == "aiokafka":
        found = asyncio.run(run_aiokafka(servers, count, acks, value))
    else:
        found = run_kafka_python(servers, count, acks, value)
    return statistics.median(found) * 1000


def compare(count: int, rounds: int, acks: str) -> None:
    """Print the table."""
    with kops.Cluster(1, topics=["bench"]) as cluster:
        p50s: dict[str, list[float]] = {client: [] for client in CLIENTS}
        for _ in range(rounds):
            for client, found in p50s.items():
                command = [sys.executable, "-m", "tests.bench.nodes.single_sends", "--one", client, cluster.bootstrap_servers]
                ran = subprocess.run([*command, str(count), acks], capture_output=True, text=True, check=True)
                found.append(float(ran.stdout))
        print(f"{count} records one at a time, acks={acks}: p50 in ms of each round, and their median")
        for client, found in p50s.items():
            print(f"  {client:16} {'  '.join(f'{one:.3f}' for one in found)}   {statistics.median(found):.3f}", flush=True)


def main() -> None:
    """Run the comparison, or one of its measured processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--acks", choices=["all", "1"], default="all")
    parser.add_argument("--one", nargs=4, metavar=("CLIENT", "SERVERS", "COUNT", "ACKS"))
    given = parser.parse_args()
    if given.one:
        client, servers, count, acks = given.one
        print(run(client, servers, int(count), acks))
    else:
        compare(given.records, given.rounds, given.acks)


if __name__ == "__main__":
    main()
