"""A whole node whose disk fails once, at each single operation of its start. The node serves without the failed directory or ends, and
leaves nothing open.
"""

from __future__ import annotations

import errno
import gc
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kops.broker.life.node import Node
from kops.broker.network.events.loop import Loop
from kops.config import BrokerConfig
from kops.errors import KopsError
from kops.files import FaultyFiles, OsFiles
from tests.support.nodes.embedded_nodes import EmbeddedNodes
from tests.support.nodes.networking import PATIENCE_S, open_fds

TURN_MS = 100


class Start:
    """One start of a node on a copy of a directory. Either `ready` is true or `error` has the reason. `left` is the number of descriptors
    that are open after the node was killed.
    """

    def __init__(self, properties: dict[str, str], at: int) -> None:
        self.files = FaultyFiles(OsFiles(), at=at, error=errno.EIO)
        self.ready = False
        self.error: str | None = None
        before = open_fds(collect=False)  # a collection for each start would take longer than the starts
        self.loop = Loop()
        self.node = Node(self.loop, BrokerConfig.from_properties(properties), files=self.files)
        self.node.on_ready = self._ready
        self.node.on_failed = self._failed
        try:
            self.node.start()
            self._turn_until(lambda: self.ready or self.error is not None)
        except KopsError as error:
            self.error = str(error)  # without its metadata log a node ends its process
        self.operation_count = len(self.files.operations)
        self.node.kill()
        self._turn_until(lambda: self.node.is_closed)
        self.loop.close()
        self.left = open_fds(collect=False) - before

    def _ready(self) -> None:
        self.ready = True

    def _failed(self, reason: str) -> None:
        self.error = reason

    def _turn_until(self, holds: Callable[[], bool]) -> None:
        deadline_ms = self.loop.monotonic_ms() + PATIENCE_S * 1000
        while not holds():
            assert self.loop.monotonic_ms() < deadline_ms, "it neither serves nor ends"
            self.loop.run_once(TURN_MS)


@pytest.fixture(name="properties", scope="module")
def _properties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The properties of a node that was stopped with a topic and records. The tests copy its directory."""
    root = tmp_path_factory.mktemp("node")
    with EmbeddedNodes(root) as nodes:
        nodes.create_topic(1, "orders", partitions=2)
        assert nodes.produce(1, "orders", 3) == (0, 0)
        nodes.stop(1)
        yield nodes.nodes[1].properties


@pytest.mark.slow
@pytest.mark.parametrize("is_clean", [True, False])
def test_every_operation_of_a_start_fails_once(properties: dict[str, str], tmp_path: Path, is_clean: bool) -> None:
    def start(at: int) -> Start:
        copy = tmp_path / str(at)
        shutil.copytree(properties["log.dirs"], copy)
        if not is_clean:
            (copy / ".kafka_cleanshutdown").unlink()
        # After a kill, the node can register again only when the session of its last life is over.
        done = Start({**properties, "log.dirs": str(copy), "broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}, at)
        shutil.rmtree(copy)
        return done

    gc.collect()
    whole = start(0)
    assert whole.ready
    outcomes = set()
    for at in range(1, whole.operation_count + 1):
        done = start(at)
        assert done.left == 0, done.files.operations[at - 1 :][:1]
        assert done.ready or done.error
        outcomes.add(done.ready)
    assert outcomes == {True, False}
