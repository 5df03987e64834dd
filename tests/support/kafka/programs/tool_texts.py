"""The output of Kafka's tools in a scenario on a cluster, and how it is compared with the output on another cluster."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.kafka.kafka_jars import KAFKA_VERSION
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.nodes.kops_nodes import KopsNodes

PATIENCE_S = 60


MASKS = [
    (re.compile(pattern, re.MULTILINE), replacement)
    for pattern, replacement in (
        (r"^(SLF4J|log4j):.*\n", ""),
        (r"^\t(at |\.\.\. \d+ more).*\n", ""),  # reflection makes classes of its own after some calls
        (r"TopicId: \S{22}", "TopicId: *"),
        (r'"directoryId": "\S{22}"', "directoryId"),
        (r"127\.0\.0\.1 \d+", "127.0.0.1 *"),
        (r"(HighWatermark|LeaderId|LeaderEpoch|MaxFollowerLag|MaxFollowerLagTimeMs): +-?\d+", r"\1"),
        (r"Epoch: \d+", "Epoch"),
        (r"Local controller \d", "Local controller"),
        (r"^([123])\s+\S{22}\s+\d+\s+\d+\s+\d+\s+\d+\s+(Leader|Follower)[ \t]*", r"\1"),
        (r'"(timestamp|size)":\d+', r"\1"),
        (r'"avg_throughput":[0-9.E]+', "avg_throughput"),
        (r"records sent, .*", "records sent"),
        (r"(deadlineMs|tries|nextAllowedTryMs)=\d+", r"\1"),
        (r"timed out at \d+ after \d+", "timed out"),
    )
]


class Scenario:
    """The steps, and what the tools have printed. `work` is the folder for files that tools read."""

    def __init__(self, tools: KafkaTools, nodes: KopsNodes, work: Path) -> None:
        self.tools = tools
        self.nodes = nodes
        self.work = work
        self.told: list[tuple[str, str]] = []
        self.server = ("--bootstrap-server", nodes.bootstrap)
        self.is_newest = tools.oracle.version == KAFKA_VERSION

    def run(self, tool: str, *arguments: object, stdin: str = "") -> str:
        """Run a step: the tool with the bootstrap servers before its arguments."""
        return self.note(tool, arguments, self.tools.run(tool, *self.server, *arguments, stdin=stdin))

    def note(self, tool: str, arguments: tuple[object, ...], text: str) -> str:
        """Keep what was printed."""
        self.told.append((" ".join([tool, *map(str, arguments)]), text))
        return text

    def until(self, found: Callable[[str], bool], tool: str, *arguments: object) -> None:
        """Repeat a command until its answer is as wanted. Only this answer is kept."""
        deadline = time.monotonic() + PATIENCE_S
        while not found(text := self.tools.run(tool, *self.server, *arguments)):
            assert time.monotonic() < deadline, text
            time.sleep(0.05)
        self.note(tool, arguments, text)

    def file(self, name: str, value: object) -> Path:
        """Write a JSON file."""
        path = self.work / name
        path.write_text(json.dumps(value))
        return path


def comparable(command: str, text: str, nodes: KopsNodes, work: Path) -> list[str]:
    """Return what was printed, without what differs between two clusters or two runs."""
    for node_id in nodes.ids:
        text = text.replace(f"127.0.0.1:{nodes.ports[node_id]}", f"broker-{node_id}")
        text = text.replace(f"127.0.0.1:{nodes.controller_ports[node_id]}", f"controller-{node_id}")
        text = text.replace(str(nodes.log_dir(node_id)), f"dir-{node_id}")
    text = text.replace(str(work), "work")
    for pattern, replacement in MASKS:
        text = pattern.sub(replacement, text)
    tool, _, arguments = command.partition(" ")
    lines = text.splitlines()
    # These come out of sets and from several brokers, in any order.
    return sorted(lines) if tool in ("delete-records", "verifiable-producer") or "--replication" in arguments else lines
