"""The first part of the demo: a cluster of kops, a real client, the leader killed under load, nothing lost.

The client is librdkafka (confluent-kafka) with `acks=all`. The acknowledged records are compared with those read at the end.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from kops.cluster.layout.ports import find_base
from tools.demo_groups import run_groups
from tools.demo_show import Demo

TOPIC = "orders"
PARTITIONS = 3
BEFORE = 20_000
RATE = 1_000
VALUE_SIZE = 200
WAIT_S = 60
OFFSET_BEGINNING = -2


class Load:
    """Produces at a steady rate from its own thread, and records what was acknowledged and when."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.times: list[tuple[float, int]] = []
        self.failed: list[str] = []
        self.count = 0
        settings = {"acks": "all", "enable.idempotence": True, "linger.ms": 2, "batch.num.messages": 50, "log_level": 2}
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, **settings})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def send(self, count: int) -> None:
        """Send this many records as fast as possible."""
        for _ in range(count):
            self._send_one()
        self.flush()

    def _send_one(self) -> None:
        value = f"order {self.count} ".encode().ljust(VALUE_SIZE, b".")
        self._producer.produce(TOPIC, value, key=f"customer-{self.count % 997}", on_delivery=self._told)
        self._producer.poll(0)
        self.count += 1

    def _told(self, error: KafkaError | None, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        if error is not None or partition is None or offset is None or value is None:
            self.failed.append(str(error))
            return
        self.acknowledged[partition, offset] = value
        self.times.append((time.monotonic(), partition))

    def start(self) -> None:
        """Send `RATE` records a second from now on."""
        self._thread.start()

    def _run(self) -> None:
        started, sent = time.monotonic(), 0
        while not self._is_over.is_set():
            while sent < (time.monotonic() - started) * RATE:
                self._send_one()
                sent += 1
            self._producer.poll(0.002)

    def stop(self) -> None:
        """Stop sending, and wait for the answers."""
        self._is_over.set()
        self._thread.join()
        self.flush()

    def flush(self) -> None:
        """Wait for all answers."""
        self._producer.flush(WAIT_S)

    def pause_s(self, partition: int, killed: float, elected: float) -> float:
        """The longest time without an acknowledgement of a partition after a kill, when there is one again after an election."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            moments = [killed, *sorted(moment for moment, number in list(self.times) if number == partition and moment > killed)]
            if moments[-1] > elected:
                return max(after - before for before, after in itertools.pairwise(moments))
            time.sleep(0.01)
        return float("inf")


def run_cluster(demo: Demo) -> None:
    """Up, load, `kill -9` of the leader, the broker back in sync, nothing lost, down."""
    base_port = find_base(3)
    demo.title("1. A Kafka cluster of three brokers is created and started")
    started = time.monotonic()
    try:
        demo.kops(f"cluster up -n 3 --port-base {base_port} --data-dir cluster", code=0)
        demo.facts.append(f"three brokers were created and started, and answered after {time.monotonic() - started:.2f} s")
        demo.environment["BOOTSTRAP_SERVERS"] = demo.ask("cluster env --data-dir cluster")["BOOTSTRAP_SERVERS"]
        demo.kops("cluster status --data-dir cluster", code=0)
        settings = "--config min.insync.replicas=2 --config segment.bytes=1048576"
        demo.kops(f"topic create {TOPIC} --partitions {PARTITIONS} --replication-factor 3 {settings}", code=0)
        fail_over(demo, Load(demo.environment["BOOTSTRAP_SERVERS"]))
        run_groups(demo)
        demo.title("7. The cluster is stopped")
        demo.kops("cluster down --data-dir cluster", code=0)
    except BaseException:
        demo.run("cluster kill --data-dir cluster")
        raise


def fail_over(demo: Demo, load: Load) -> None:
    """Produce, kill the leader of partition 0, go on, start it again, compare."""
    demo.title("2. A client produces with acks=all, and the leader of a partition is killed")
    load.send(BEFORE)
    load.start()
    leader = next(one["leader"] for one in partitions(demo) if one["partition"] == 0)
    broker = next(one for one in demo.ask("cluster status --data-dir cluster")["brokers"] if one["id"] == leader)
    roles = f"the leader of {TOPIC}-0" + (" and the active controller" if broker["controller"] else "")
    demo.kops(f"topic describe {TOPIC}", code=0)
    time.sleep(1)
    killed = time.monotonic()
    os.kill(broker["pid"], signal.SIGKILL)
    demo.note(f"kill -9 {broker['pid']}: broker {leader}, {roles}, under {RATE} records a second")
    wait_for_election(demo, leader)
    pause_s = load.pause_s(0, killed, time.monotonic())
    demo.check(pause_s < WAIT_S, f"{TOPIC}-0 has a new leader and acknowledges again after {pause_s:.2f} s")
    demo.facts.append(f"kill -9 of {roles} under load: {TOPIC}-0 acknowledged nothing for {pause_s:.2f} s")
    demo.kops(f"topic describe {TOPIC}", code=0)

    demo.title("3. It is started again and catches up; nothing that was acknowledged is lost")
    started = time.monotonic()
    demo.kops(f"cluster broker start {leader} --data-dir cluster", code=0)
    while any(len(one["isr"]) < 3 for one in partitions(demo)):
        if time.monotonic() - started > WAIT_S:
            demo.check(False, "all replicas are in sync again")
    demo.check(True, f"all replicas are in sync again, {time.monotonic() - started:.2f} s after the start")
    demo.kops(f"topic describe {TOPIC}", code=0)
    load.stop()
    there = read_all(demo.environment["BOOTSTRAP_SERVERS"])
    lost = [place for place, value in load.acknowledged.items() if there.get(place) != value]
    demo.check(not load.failed and len(load.acknowledged) == load.count, f"{load.count:,} records were sent and acknowledged")
    demo.check(not lost, f"all {len(load.acknowledged):,} are there at their offsets")
    demo.check(len(there) == len(load.acknowledged), "and none is there twice")
    demo.facts.append(f"{load.count:,} records acknowledged around it: none lost, none twice")


def wait_for_election(demo: Demo, former: int) -> None:
    """Until partition 0 is led by another broker."""
    deadline = time.monotonic() + WAIT_S
    while next(one["leader"] for one in partitions(demo) if one["partition"] == 0) in (former, -1, None):
        if time.monotonic() > deadline:
            demo.check(False, f"{TOPIC}-0 has a new leader")
        time.sleep(0.05)


def partitions(demo: Demo) -> list[dict[str, Any]]:
    """The topic's partitions as the brokers report them."""
    found: list[dict[str, Any]] = demo.ask(f"topic describe {TOPIC}")["topics"][0]["partitions"]
    return found


def read_all(bootstrap_servers: str) -> dict[tuple[int, int], bytes]:
    """All records: partition and offset → value."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "demo", "enable.auto.commit": False})
    ends = {one: consumer.get_watermark_offsets(TopicPartition(TOPIC, one), timeout=WAIT_S)[1] for one in range(PARTITIONS)}
    consumer.assign([TopicPartition(TOPIC, one, OFFSET_BEGINNING) for one in ends])
    found: dict[tuple[int, int], bytes] = {}
    deadline = time.monotonic() + WAIT_S
    while len(found) < sum(ends.values()) and time.monotonic() < deadline:
        for message in consumer.consume(10_000, timeout=1):
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            found[partition, offset] = message.value() or b""
    consumer.close()
    return found
