"""One cluster of both: each node is a process of kops or of Apache Kafka, on directories that kops has formatted.

with MixedCluster(oracle, tmp_path, {1: ("kops", "controller"), 2: ("kops", "broker"), 3: ("kafka", "broker")}) as cluster:
    cluster.kill(2); cluster.start(2); cluster.wait(2)         # kill -9, and again on the same ports and directories
    cluster.stop(2); cluster.turn(2); cluster.start(2)         # from now on it is Kafka's
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Self

from kops.broker.quorum.draws import random_uuid
from kops.broker.quorum.format import FormatOptions, format_node
from kops.config import BrokerConfig
from kops.files import OsFiles
from kops.storage.formats.kafka_uuid import uuid_text
from kops.storage.formats.names import partition_dir_name
from tests.support.corpus import PROJECT
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import SMALL, RealNode
from tests.support.nodes import librdkafka as kafka
from tests.support.nodes.soaks.soaking import log_bytes
from tests.support.parts.controlling import CLUSTER_ID
from tests.support.ports import free_ports

TIMEOUT_S = 180
# The JVMs share two cores with everything else.
PATIENT = {
    "broker.session.timeout.ms": "6000",
    "controller.quorum.fetch.timeout.ms": "4000",
    "controller.quorum.request.timeout.ms": "4000",
    "replica.lag.time.max.ms": "10000",
    "initial.broker.registration.timeout.ms": "180000",
}


class MixedCluster:
    """A cluster whose nodes have an id, an implementation ("kops" or "kafka") and roles.

    The controllers are a dynamic quorum from the start.

    `ports` has the controller's port of nodes that are only controllers, and the broker's port of all others.
    """

    def __init__(self, oracle: Oracle, root: Path, nodes: Mapping[int, tuple[str, str]], **settings: str) -> None:
        self.root = root
        self.nodes = dict(nodes)
        self.ids = list(nodes)
        self.controllers = [node_id for node_id, (_, roles) in nodes.items() if "controller" in roles]
        self.brokers = [node_id for node_id, (_, roles) in nodes.items() if "broker" in roles]
        ports = free_ports(len(nodes) + len(self.controllers))
        self.ports = dict(zip(nodes, ports, strict=False))
        both = dict(zip(self.controllers, ports[len(nodes) :], strict=True))
        self._controller_ports = {one: both[one] if one in self.brokers else self.ports[one] for one in self.controllers}
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        self._voters = ",".join(f"{one}@127.0.0.1:{self._controller_ports[one]}:{uuid_text(random_uuid())}" for one in self.controllers)
        self._real_nodes = {node_id: RealNode(oracle, root / f"run-{node_id}", self._properties_path(node_id)) for node_id in nodes}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        for node_id in nodes:
            self._format(node_id)

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers."""
        return ",".join(f"127.0.0.1:{self.ports[node_id]}" for node_id in self.brokers)

    def log_dir(self, node_id: int) -> Path:
        """Return a node's log directory."""
        return self.root / f"node-{node_id}"

    def _properties_path(self, node_id: int) -> Path:
        return self.root / f"{node_id}.properties"

    def _format(self, node_id: int) -> None:
        listeners = [f"PLAINTEXT://127.0.0.1:{self.ports[node_id]}"] if node_id in self.brokers else []
        if node_id in self.controllers:
            listeners.append(f"CONTROLLER://127.0.0.1:{self._controller_ports[node_id]}")
        values = {
            "process.roles": self.nodes[node_id][1],
            "node.id": str(node_id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in self._controller_ports.values()),
            "log.dirs": str(self.log_dir(node_id)),
            **{key: str(value) for key, value in SMALL.items()},
            **PATIENT,
            **self._settings,
        }
        self._properties_path(node_id).write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        options = FormatOptions(CLUSTER_ID, initial_controllers=self._voters)
        format_node(OsFiles(), BrokerConfig.from_properties(values), options, now_ms=1)

    @property
    def _real(self) -> dict[int, RealNode]:
        return {node_id: self._real_nodes[node_id] for node_id, (whose, _) in self.nodes.items() if whose == "kafka"}

    def turn(self, node_id: int) -> None:
        """Let the other implementation start on a node's directories the next time."""
        whose, roles = self.nodes[node_id]
        self.nodes[node_id] = ("kops" if whose == "kafka" else "kafka", roles)

    # life -------------------------------------------------------------------------------------------------------------------------

    def start(self, node_id: int) -> None:
        """Start a node (again). `wait` waits until it serves."""
        if node_id in self._real:
            self._real[node_id].launch()
            return
        command = [sys.executable, "-m", "kops.broker", str(self._properties_path(node_id)), "--status", str(self._status_path(node_id))]
        self._status_path(node_id).unlink(missing_ok=True)
        with open(self.root / f"{node_id}.out", "ab") as output:
            self.processes[node_id] = subprocess.Popen(
                command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def wait(self, node_id: int) -> None:
        """Wait until a node serves."""
        if node_id in self._real:
            self._real[node_id].wait_ready()
            return
        deadline = time.monotonic() + TIMEOUT_S
        path = self._status_path(node_id)
        while not path.exists() or '"RUNNING"' not in path.read_text():
            ended = self.processes[node_id].poll()
            assert ended is None, f"node {node_id} ended with {ended}:\n{self.output(node_id)[-3000:]}"
            assert time.monotonic() < deadline, f"node {node_id} does not serve:\n{self.output(node_id)[-3000:]}"
            time.sleep(0.05)

    def process(self, node_id: int) -> subprocess.Popen[bytes]:
        """Return a node's process while it runs."""
        found = self._real[node_id].process if node_id in self._real else self.processes[node_id]
        assert found is not None, f"node {node_id} does not run"
        return found

    def kill(self, node_id: int) -> None:
        """Kill a node with kill -9."""
        if node_id in self._real:
            self._real[node_id].kill()
        elif node_id in self.processes:
            process = self.processes.pop(node_id)
            process.kill()
            process.wait()

    def stop(self, node_id: int) -> int:
        """Stop a node as an administrator does. Return its exit code."""
        if node_id in self._real:
            return self._real[node_id].stop()
        process = self.processes.pop(node_id)
        process.terminate()
        return process.wait(TIMEOUT_S)

    def output(self, node_id: int) -> str:
        """Return what a node has printed."""
        if node_id in self._real:
            return self._real[node_id].output()
        return (self.root / f"{node_id}.out").read_text(errors="replace")

    def _status_path(self, node_id: int) -> Path:
        return self.root / f"{node_id}.status.json"

    def __enter__(self) -> Self:
        try:
            for node_id in self.nodes:
                self.start(node_id)
            for node_id in self.nodes:
                self.wait(node_id)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node_id in self.nodes:
            self.kill(node_id)

    # what is in it ----------------------------------------------------------------------------------------------------------------

    def partitions(self, topic: str) -> dict[int, tuple[int, list[int], list[int]]]:
        """Return partition → leader, replicas, in-sync replicas."""
        found = kafka.admin(self.bootstrap).list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        return {number: (one.leader, one.replicas, sorted(one.isrs)) for number, one in found.items()}

    def wait_for(self, topic: str, *, leaders: Collection[int] | None = None, in_sync: Collection[int] | None = None) -> None:
        """Wait until each partition of a topic is led by one of `leaders`, or has exactly these in-sync replicas."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            found = self.partitions(topic)
            if all(
                found and (leaders is None or leader in leaders) and (in_sync is None or isr == sorted(in_sync))
                for leader, _, isr in found.values()
            ):
                return
            assert time.monotonic() < deadline, f"{topic}: wanted leaders {leaders}, in sync {in_sync}, is {found}"
            time.sleep(0.2)

    def check_replicas_equal(self, topic: str, *partitions: int) -> None:
        """The logs of all replicas hold the same bytes."""
        for number in partitions:
            logs = {one: log_bytes(self.log_dir(one) / partition_dir_name(topic, number)) for one in self.partitions(topic)[number][1]}
            first = next(iter(logs.values()))
            assert first, f"{topic}-{number} is empty"
            assert all(log == first for log in logs.values()), f"{topic}-{number}: sizes { ({one: len(log) for one, log in logs.items()}) }"
