"""`KopsNodes` with Apache Kafka's nodes instead of kops's: the same server.properties and the same directories."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.kafka.oracle import java_command
from tests.support.kafka.real_broker import LOGGERS, READY
from tests.support.nodes.kops_nodes import TIMEOUT_S, KopsNodes


class KafkaNodes(KopsNodes):
    """Nodes of Apache Kafka.

    `java` is the launcher with its options and class path. A caller that gives another one finds out itself when the nodes are ready.
    """

    def __init__(
        self, work: Path, count: int = 3, *, settings: Mapping[str, object] | None = None, java: Sequence[str] | None = None
    ) -> None:
        super().__init__(work, count, settings=settings)
        self._says_ready = java is None
        self._java = java_command(heap="256m", log_level="warn", loggers=LOGGERS) if java is None else java

    def command(self, node_id: int, properties: Path) -> list[str]:
        """Return the command that runs Kafka's main class with the same file."""
        return [*self._java, "kafka.Kafka", str(properties)]

    def wait(self, node_id: int) -> None:
        """Wait until a node says that it is ready."""
        deadline = time.monotonic() + 2 * TIMEOUT_S
        while self._says_ready and READY not in self.output(node_id):
            ended = self.processes[node_id].poll()
            assert ended is None, f"node {node_id} ended with {ended}:\n{self.output(node_id)[-3000:]}"
            assert time.monotonic() < deadline, f"node {node_id} is not ready:\n{self.output(node_id)[-3000:]}"
            time.sleep(0.05)
