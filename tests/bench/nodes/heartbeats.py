"""Measures the cost of a heartbeat for a node of kops and of Apache Kafka 4.3.0: `python -m tests.bench.nodes.heartbeats [--rounds N]
[--count N] [--pause-ms N] [--tree NAME=PATH]…`.

Ten groups have one member each. A raw client sends their heartbeats one after the other, with a pause before each if requested. The
clusters have one node each and take turns. The figures are microseconds of CPU per heartbeat, less what the node takes without heartbeats.
Before them stands what a server needs that answers and does nothing else (`tests.bench.nodes.echo`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from kops.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from kops.protocol.messages.join_group_request import JoinGroupRequestProtocol
from kops.protocol.messages.sync_group_request import SyncGroupRequestAssignment
from tests.bench.cluster import Client, kafka_java, until
from tests.bench.data import CACHE
from tests.bench.nodes.ack_latency import usage
from tests.support.corpus import PROJECT
from tests.support.kafka.kafka_nodes import KafkaNodes
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.raw_client import RawClient

GROUPS: Final = 10
SESSION_MS: Final = 600_000  # The members of one cluster wait while the others have their turns.
SETTINGS: Final = {
    "offsets.topic.replication.factor": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.max.session.timeout.ms": SESSION_MS,
}
VERSIONS: Final = {"classic": 4, "consumer": 1}
IDLE_S: Final = 3.0
WARM: Final = 1_000
WARM_OF_A_JVM: Final = 30_000
HEARTBEAT: Final = bytes(100)  # about the size of a heartbeat


class Members:
    """The members of ten groups on the one node of a cluster."""

    def __init__(self, nodes: KopsNodes, protocol: str) -> None:
        self.nodes = nodes
        self._version = VERSIONS[protocol]
        client = Client(nodes)
        client.wait_for_brokers()
        self._heartbeats: list[tuple[RawClient, Any]] = []
        for number in range(GROUPS):
            group = f"{protocol}-{number}"
            until(lambda: getattr(client.ask(1, FindCoordinatorRequest(key=group), 3), "error_code", 1) == 0)  # noqa: B023 - called at once
            member = RawClient(f"127.0.0.1:{nodes.ports[1]}")
            joined = join_classic(member, group) if protocol == "classic" else join_consumer(member, group)
            self._heartbeats.append((member, joined))

    def beat(self, count: int, pause_s: float = 0.0) -> None:
        """Send heartbeats. Raises RuntimeError if one is rejected."""
        for _ in range(count // GROUPS):
            for client, request in self._heartbeats:
                if pause_s:
                    time.sleep(pause_s)
                if getattr(client.ask(request, self._version), "error_code", 1):
                    raise RuntimeError("a heartbeat is refused")

    def cost_us(self, count: int, pause_s: float, idle_us: float) -> float:
        """Return the microseconds of the node's CPU per heartbeat. `idle_us` is what the node uses per second anyway."""
        before, started = usage(self.nodes)[0], time.perf_counter()
        self.beat(count, pause_s)
        return ((usage(self.nodes)[0] - before) / 1000 - idle_us * (time.perf_counter() - started)) / count

    def idle_us(self) -> float:
        """Return the microseconds of CPU per second without heartbeats."""
        before, started = usage(self.nodes)[0], time.perf_counter()
        time.sleep(IDLE_S)
        return (usage(self.nodes)[0] - before) / 1000 / (time.perf_counter() - started)


class Echo:
    """The server that does nothing but answer, with ten clients. `cost_us` is as in `Members`."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.bench.nodes.echo"]
        self._process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        address = ("127.0.0.1", int(self._process.stdout.readline()))
        self._clients = [socket.create_connection(address) for _ in range(GROUPS)]
        for client in self._clients:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def cost_us(self, count: int, pause_s: float) -> float:
        """Return the microseconds of the server's CPU per message."""
        before = self._cpu_us()
        for _ in range(count // GROUPS):
            for client in self._clients:
                if pause_s:
                    time.sleep(pause_s)
                client.sendall(HEARTBEAT)
                client.recv(64)
        return (self._cpu_us() - before) / count

    def _cpu_us(self) -> float:
        return int(Path(f"/proc/{self._process.pid}/schedstat").read_text().split()[0]) / 1000

    def close(self) -> None:
        """End the server."""
        self._process.kill()
        self._process.wait()


def answered(client: RawClient, request: Any, version: int) -> Any:
    """Repeat a request until the coordinator has loaded its groups, and return the answer."""
    found: list[Any] = []

    def asked() -> bool:
        found[:] = [client.ask(request, version)]
        return found[0].error_code == 0 or bool(getattr(found[0], "member_id", ""))

    until(asked)
    return found[0]


def join_classic(client: RawClient, group: str) -> HeartbeatRequest:
    """Join as the only member of a classic group and return the request for its heartbeats."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )
    request.member_id = answered(client, request, 9).member_id
    joined = answered(client, request, 9)
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(joined.member_id, b"")],
    )
    answered(client, sync, 5)
    return HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)


def join_consumer(client: RawClient, group: str) -> ConsumerGroupHeartbeatRequest:
    """Join as the only member of a consumer group and return the request for its heartbeats."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=f"member-of-{group}",
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=["not-there"],
        topic_partitions=[],
    )
    joined = answered(client, request, 1)
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=joined.member_id, member_epoch=joined.member_epoch)


def main(arguments: Sequence[str]) -> None:
    """Start the clusters, let them take turns and print the lowest and the median turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--count", type=int, default=500, help="heartbeats of a turn")
    parser.add_argument("--pause-ms", type=float, default=0.0, help="before each heartbeat")
    parser.add_argument("--tree", action="append", default=[], metavar="NAME=PATH", help="another checkout with compiled modules")
    asked = parser.parse_args(arguments)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    CACHE.mkdir(parents=True, exist_ok=True)
    trees = {"kops": PROJECT, **{name: Path(path) for name, _, path in (each.partition("=") for each in asked.tree)}}
    pause_s = asked.pause_ms / 1000
    with ExitStack() as ended:
        echo = Echo()
        ended.callback(echo.close)
        echo.cost_us(WARM, 0)
        costs = [echo.cost_us(asked.count, pause_s) for _ in range(asked.rounds)]
        print(f"an empty server: lowest turn {min(costs):.0f} us, median {statistics.median(costs):.0f} us a message", flush=True)
        work = Path(tempfile.mkdtemp(prefix="heartbeats-", dir=CACHE))
        ended.callback(shutil.rmtree, work)
        clusters: dict[str, KopsNodes] = {}
        for name in (*trees, "kafka"):
            (work / name).mkdir()
            nodes = KopsNodes(work / name, 1, settings=SETTINGS)
            if name == "kafka":
                nodes = KafkaNodes(work / name, 1, settings=SETTINGS, java=kafka_java())
            else:
                nodes.tree = trees[name]
            clusters[name] = ended.enter_context(nodes)
        for protocol in VERSIONS:
            members = {name: Members(nodes, protocol) for name, nodes in clusters.items()}
            for name, each in members.items():
                each.beat(WARM_OF_A_JVM if name == "kafka" else WARM)
            idle = {name: each.idle_us() for name, each in members.items()}
            for name, idle_us in idle.items():
                print(f"{protocol} {name}: {idle_us / 10_000:.1f} % of a core without heartbeats")
            figures: dict[str, list[float]] = {name: [] for name in members}
            for number in range(asked.rounds):
                for name in members if number % 2 == 0 else reversed(members):
                    figures[name].append(members[name].cost_us(asked.count, pause_s, idle[name]))
            for name, costs in figures.items():
                print(
                    f"{protocol} {name}: lowest turn {min(costs):.0f} us, median {statistics.median(costs):.0f} us a heartbeat", flush=True
                )


if __name__ == "__main__":
    main(sys.argv[1:])
