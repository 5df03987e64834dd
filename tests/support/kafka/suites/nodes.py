"""Starts and ends nodes of kops for Kafka's own tests: `python -m tests.support.kafka.suites.nodes`. The JVM's class `kops.Nodes` asks.

A question is a line of words with tabs between them; FILE is the path of a node's server.properties, which names the node.

    ports COUNT                                   free ports, with commas between them
    format FILE CLUSTER RELEASE NAME=LEVEL,…      formats its directories; no release: the newest
    start FILE | await FILE                       starts a node; waits until it serves
    stop FILE | kill FILE                         stops it as an administrator does, or with kill -9; nothing if it does not run

The answer is a line: `ok`, a tab, a value; or the error. At the end of the questions all nodes are killed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from kops.broker.quorum.format import FormatOptions, format_node
from kops.config import BrokerConfig
from kops.config.values.properties import read_properties
from kops.errors import KopsError
from kops.files import OsFiles
from tests.support.ports import free_ports

PATIENCE_S = 120


class Node(NamedTuple):
    """A node's process, and the file in which it writes its status."""

    process: subprocess.Popen[bytes]
    status: Path


class NodeError(Exception):
    """A node did not do what was asked."""


class Nodes:
    """The nodes that were started, by the path of their settings."""

    def __init__(self) -> None:
        self.running: dict[str, Node] = {}

    def answer(self, question: list[str]) -> str:
        """Do what is asked. Raises NodeError, KopsError, OSError."""
        match question:
            case ["ports", count]:
                return ",".join(map(str, free_ports(int(count))))
            case ["format", file, cluster_id, release, levels]:
                self.format(file, cluster_id, release, levels)
            case ["start", file]:
                self.start(file)
            case ["await", file]:
                self.wait(file)
            case ["stop", file]:
                self.stop(file)
            case ["kill", file]:
                self.kill(file)
            case _:
                raise NodeError(f"an unknown question: {question}")
        return ""

    def format(self, file: str, cluster_id: str, release: str, levels: str) -> None:
        """Format a node's directories."""
        config = BrokerConfig.from_properties(read_properties(Path(file).read_bytes()))
        features = {name: int(level) for name, _, level in (each.partition("=") for each in levels.split(",") if each)}
        for directory in {*config.log_dirs, config.metadata_log_dir}:
            Path(directory).mkdir(parents=True, exist_ok=True)
        options = FormatOptions(cluster_id, ignore_formatted=True, release_version=release or None, features=features)
        format_node(OsFiles(), config, options, now_ms=time.time_ns() // 1_000_000)

    def start(self, file: str) -> None:
        """Start a node's process."""
        status = Path(f"{file}.status.json")
        status.unlink(missing_ok=True)
        with open(f"{file}.out", "ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "kops.broker", file, "--status", str(status)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.running[file] = Node(process, status)

    def wait(self, file: str) -> None:
        """Wait until a node serves."""
        node = self.running[file]
        deadline = time.monotonic() + PATIENCE_S
        while not node.status.exists() or '"RUNNING"' not in node.status.read_text():
            if node.process.poll() is not None or time.monotonic() > deadline:
                said = Path(f"{file}.out").read_text(errors="replace")[-3000:]
                raise NodeError(f"it does not serve (exit {node.process.poll()})\n{said}")
            time.sleep(0.01)

    def stop(self, file: str) -> None:
        """Stop a node and wait for its end."""
        node = self.running.pop(file, None)
        if node is None:
            return
        node.process.terminate()
        try:
            node.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            node.process.kill()
            node.process.wait()
            raise NodeError("it does not stop") from None

    def kill(self, file: str) -> None:
        """Kill a node with kill -9."""
        node = self.running.pop(file, None)
        if node is not None:
            node.process.kill()
            node.process.wait()


def main() -> None:
    """Answer until there are no more questions."""
    nodes = Nodes()
    try:
        for line in sys.stdin:
            try:
                said = f"ok\t{nodes.answer(line.rstrip(chr(10)).split(chr(9)))}"
            except (NodeError, KopsError, OSError) as error:
                said = f"{type(error).__name__}: {error}".replace("\n", "\u2028")
            sys.stdout.write(f"{said}\n")
            sys.stdout.flush()
    finally:
        for file in list(nodes.running):
            nodes.kill(file)


if __name__ == "__main__":
    main()
