"""Produces while the disk is slow: `python -m tests.bench.nodes.slow_disk [--sync-ms MS] [--seconds S] [--dir DIR]`.

Three nodes of kops run as processes in which every fsync takes MS longer. One client sends small records, one at a time, with acks=all, to
a topic with three replicas. Meanwhile several tasks, one after the other, keep the disk busy. Each line is one such phase, with the
latencies that the client saw. Nothing is asserted: compare p99 with the time of a sync.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kops.protocol.messages import CreateTopicsRequest, ProduceRequest
from kops.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from kops.records.build import BatchBuilder
from tests.bench.cluster import RECORD, Client, until
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.raw_client import RawClient

PAUSE_S: Final = 0.005
SETTINGS: Final = {
    "log.initial.task.delay.ms": 500,
    "log.retention.check.interval.ms": 1000,
    "log.flush.offset.checkpoint.interval.ms": 1000,
    "log.flush.start.offset.checkpoint.interval.ms": 1000,
    "replica.high.watermark.checkpoint.interval.ms": 1000,
    "log.cleaner.backoff.ms": 500,
    "log.segment.delete.delay.ms": 1000,
}
OLD: Final = {"internal.segment.bytes": 200_000, "retention.bytes": 400_000}
COMPACTED: Final = {"internal.segment.bytes": 200_000, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01}


class SlowNodes(KopsNodes):
    """Nodes whose syncs take `sync_ms` longer."""

    sync_ms = 0.0

    def command(self, node_id: int, properties: Path) -> list[str]:
        """Return the command that starts a node."""
        status = str(self.status_path(node_id))
        return [sys.executable, "-m", "tests.bench.nodes.slow_disk", "--node", str(properties), status, "--sync-ms", str(self.sync_ms)]


def run_slow_node(properties: Path, status_path: str, sync_ms: float) -> int:
    """Run a node on a slow disk."""
    from kops.broker.life import node
    from kops.broker.life.process import run_node
    from kops.config.values.properties import read_properties
    from tests.support.nodes.slow_files import SlowFiles

    setattr(node, "OsFiles", lambda: SlowFiles(lambda path: time.sleep(sync_ms / 1000)))  # noqa: B010
    return run_node(read_properties(properties.read_bytes(), file=str(properties)), status_path=status_path)


class Load:
    """A load on the disk. A thread calls `step(number)` again and again until the `with` block ends."""

    def __init__(self, step: Callable[[int], None], every_s: float) -> None:
        self._step = step
        self._every_s = every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(self._every_s):
            self._step(number)
            number += 1

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def nothing(number: int) -> None:
    """Add no load. The disk has only the checkpoints that are always written."""


def batch(number: int, size: int = 50_000) -> bytes:
    """Return a batch of 1 KB records with a hundred different keys."""
    builder = BatchBuilder()
    for record in range(size // 1000):
        builder.append(time.time_ns() // 1_000_000, b"%d" % ((number * 50 + record) % 100), b"v" * 1000)
    return builder.build()


class Bench:
    """The cluster and its measured topic."""

    def __init__(self, nodes: SlowNodes) -> None:
        self.nodes = nodes
        self.client = Client(nodes)
        self._create("hot", {})
        until(lambda: self.client.produce("hot"))

    def _create(self, topic: str, settings: Mapping[str, object]) -> None:
        configs = [CreatableTopicConfig(name, str(value)) for name, value in settings.items()]
        with RawClient(self.nodes.bootstrap.partition(",")[0]) as client:
            client.ask(CreateTopicsRequest([CreatableTopic(topic, 1, 3, configs=configs)], 60_000), 7)

    def create_topic(self, number: int) -> None:
        """Create a topic."""
        self._create(f"topic-{time.monotonic_ns()}", {})

    def fill(self, topic: str, settings: Mapping[str, object]) -> Callable[[int], None]:
        """Create a topic with small segments and return a step that writes records to it."""
        self._create(topic, settings)
        until(lambda: (known := self.client.partition(topic)) is not None and known.leader_id >= 0)
        found = self.client.partition(topic)
        assert found is not None
        client = RawClient(f"127.0.0.1:{self.nodes.ports[found.leader_id]}")

        def step(number: int) -> None:
            data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch(number))])]
            client.ask(ProduceRequest(None, 1, 30_000, data), 9)

        return step

    def measure(self, name: str, step: Callable[[int], None], every_s: float, seconds: float) -> None:
        """Measure the latencies of one client under a load and print them in a line."""
        found = self.client.partition("hot")
        assert found is not None
        request = ProduceRequest(None, -1, 30_000, [TopicProduceData("hot", partition_data=[PartitionProduceData(0, RECORD)])])
        taken: list[float] = []
        with RawClient(f"127.0.0.1:{self.nodes.ports[found.leader_id]}") as client, Load(step, every_s):
            end = time.monotonic() + seconds
            while (begin := time.monotonic()) < end:
                client.ask(request, 9)
                taken.append((time.monotonic() - begin) * 1000)
                time.sleep(PAUSE_S)
        cuts = statistics.quantiles(taken, n=1000)
        figures = f"p50 {cuts[499]:8.2f}  p99 {cuts[989]:8.2f}  p99.9 {cuts[998]:8.2f}  most {max(taken):8.2f} ms"
        print(f"  {name:28s} {figures}  of {len(taken)}", flush=True)


def run(sync_ms: float, seconds: float, work: Path) -> None:
    """Run all phases."""
    SlowNodes.sync_ms = sync_ms
    with SlowNodes(work, 3, settings=SETTINGS) as nodes:
        bench = Bench(nodes)
        print(f"acks=all, three nodes, a sync takes {sync_ms:g} ms more, {seconds:g} s a phase")
        bench.measure("checkpoints", nothing, 1, seconds)
        bench.measure("topics created", bench.create_topic, 1, seconds)
        bench.measure("rolls and retention", bench.fill("old", OLD), 0.25, seconds)
        bench.measure("rolls and the cleaner", bench.fill("compacted", COMPACTED), 0.25, seconds)


def main() -> None:
    """Parse the arguments. Run a node, or the phases."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.nodes.slow_disk", description=__doc__)
    parser.add_argument("--sync-ms", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--node", nargs=2, metavar=("PROPERTIES", "STATUS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.node:
        sys.exit(run_slow_node(Path(options.node[0]), options.node[1], options.sync_ms))
    with tempfile.TemporaryDirectory(dir=options.dir) as work:
        run(options.sync_ms, options.seconds, Path(work))


if __name__ == "__main__":
    main()
