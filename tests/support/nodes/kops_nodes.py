"""Nodes of kops as processes of their own, on loopback, for any client of Kafka.

with KopsNodes(tmp_path, 3) as nodes:
    nodes.bootstrap                           # as `bootstrap.servers` wants it
    nodes.kill(2); nodes.start(2)             # kill -9, and again on the same ports and directories
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from kops.broker.quorum.format import FormatOptions, format_node
from kops.config import BrokerConfig
from kops.files import OsFiles
from tests.support.corpus import PROJECT
from tests.support.kafka.real_broker import SMALL
from tests.support.ports import free_ports

TIMEOUT_S = 120
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"


class KopsNodes:
    """`count` nodes with ids from 1 on. Each is broker and controller. `settings` are further lines of every server.properties."""

    def __init__(self, work: Path, count: int = 3, *, settings: Mapping[str, object] | None = None) -> None:
        self.work = work
        self.ids = self.brokers = range(1, count + 1)
        ports = free_ports(2 * count)
        self.ports = dict(zip(self.ids, ports[:count], strict=True))
        self.controller_ports = dict(zip(self.ids, ports[count:], strict=True))
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.settings = dict(settings or {})
        self.tree = PROJECT  # the checkout whose kops they run

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def log_dir(self, node_id: int) -> Path:
        """Return a node's log directory."""
        return self.work / f"node-{node_id}"

    def properties(self, node_id: int) -> dict[str, str]:
        """Return a node's server.properties."""
        voters = ",".join(f"{voter}@127.0.0.1:{port}" for voter, port in self.controller_ports.items())
        address = f"PLAINTEXT://127.0.0.1:{self.ports[node_id]}"
        values: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": node_id,
            "controller.quorum.voters": voters,
            "listeners": f"{address},CONTROLLER://127.0.0.1:{self.controller_ports[node_id]}",
            "advertised.listeners": address,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.log_dir(node_id),
            **SMALL,
            **self.settings,
        }
        return {name: str(value) for name, value in values.items()}

    def format(self, node_id: int) -> None:
        """Format a node's directory, unless it is formatted."""
        properties = self.properties(node_id)
        if not (self.log_dir(node_id) / "meta.properties").exists():
            self.log_dir(node_id).mkdir(parents=True, exist_ok=True)
            options = FormatOptions(CLUSTER_ID, ignore_formatted=True)
            format_node(OsFiles(), BrokerConfig.from_properties(properties), options, now_ms=time.time_ns() // 1_000_000)

    def prepare(self, node_id: int) -> Path:
        """Format a node's directory and write its server.properties. Return the file's path."""
        self.format(node_id)
        path = self.work / f"{node_id}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in self.properties(node_id).items()))
        return path

    def start(self, node_id: int) -> None:
        """Start a node's process. `wait` waits until it serves."""
        path = self.prepare(node_id)
        self.status_path(node_id).unlink(missing_ok=True)
        with open(self.work / f"{node_id}.out", "ab") as output:
            self.processes[node_id] = subprocess.Popen(
                self.command(node_id, path), cwd=self.tree, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def command(self, node_id: int, properties: Path) -> list[str]:
        """Return the command that starts a node."""
        return [sys.executable, "-m", "kops.broker", str(properties), "--status", str(self.status_path(node_id))]

    def process(self, node_id: int) -> subprocess.Popen[bytes]:
        """Return a node's process while it runs."""
        return self.processes[node_id]

    def status_path(self, node_id: int) -> Path:
        """Return the file in which a node writes its status."""
        return self.work / f"{node_id}.status.json"

    def status(self, node_id: int) -> dict[str, Any]:
        """Return the status of a node, which is empty before it has written one."""
        path = self.status_path(node_id)
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def wait(self, node_id: int) -> None:
        """Wait until a node serves."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.status(node_id).get("state") != "RUNNING":
            ended = self.processes[node_id].poll()
            assert ended is None, f"node {node_id} ended with {ended}:\n{self.output(node_id)[-3000:]}"
            assert time.monotonic() < deadline, f"node {node_id} does not serve: {self.status(node_id)}\n{self.output(node_id)[-3000:]}"
            time.sleep(0.02)

    def output(self, node_id: int) -> str:
        """Return what a node has printed."""
        return (self.work / f"{node_id}.out").read_text(errors="replace")

    def stop(self, node_id: int) -> int:
        """Stop a node as an administrator does. Return its exit code."""
        process = self.processes.pop(node_id)
        process.terminate()
        return process.wait(TIMEOUT_S)

    def kill(self, node_id: int) -> None:
        """Kill a node with kill -9."""
        process = self.processes.pop(node_id)
        process.kill()
        process.wait(TIMEOUT_S)

    def __enter__(self) -> Self:
        try:
            for node_id in self.ids:
                self.start(node_id)
            for node_id in self.ids:
                self.wait(node_id)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # As in Kafka, a node that is stopped waits for a quorum, and the others are stopping, too.
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
        self.processes.clear()
