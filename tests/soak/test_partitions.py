"""Three nodes under load with a faulty network: connections are cut in one direction or both, slow, narrow or lossy. No acknowledged record
is lost, none is duplicated, and all replicas have the same bytes. Once the network works again, every partition accepts records within
the session timeout.

`pytest -m slow tests/soak/test_partitions.py --minutes 20 --seeds 7` is a longer run with another seed. A failure prints what happened to
the network, and the seed.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.librdkafka import create_topic
from tests.support.nodes.soaks.links import Links
from tests.support.nodes.soaks.soaking import (
    PARTITIONS,
    REPLICAS,
    TOPIC,
    Disturber,
    Sender,
    check_read_back,
    check_replicas_equal,
    check_words,
    wait_in_sync,
)
from tests.support.ports import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.cores]
SESSION_MS = 6_000
SETTINGS = {
    "min.insync.replicas": 2,
    "log.segment.bytes": 1_048_576,
    "broker.session.timeout.ms": SESSION_MS,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 3_000,
    "replica.socket.timeout.ms": 3_000,
    "request.timeout.ms": 5_000,
    "controller.socket.timeout.ms": 3_000,
    "controller.quorum.election.timeout.ms": 1_000,
    "controller.quorum.fetch.timeout.ms": 2_000,
    "controller.quorum.request.timeout.ms": 2_000,
    "initial.broker.registration.timeout.ms": 240_000,
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}
SENDERS = 2
DEFAULT_MINUTES = 0.7


class LinkedNodes(KopsNodes):
    """Nodes that reach each other only through `links`. Clients reach them directly."""

    def __init__(self, work: Path, links: Links) -> None:
        super().__init__(work, REPLICAS, settings=SETTINGS)
        self.links = links
        # Take all ports at once, so that the proxy does not get a port that a node needs.
        ports = free_ports(3 * REPLICAS)
        self.ports, self.controller_ports, self._internal_ports = (dict(zip(self.ids, ports[first::3], strict=True)) for first in range(3))
        held = [socket.create_server(("127.0.0.1", port)) for port in ports]
        self._brokers = {node: links.listen(node, port) for node, port in self._internal_ports.items()}
        self._controllers = {node: links.listen(node, port) for node, port in self.controller_ports.items()}
        for sock in held:
            sock.close()

    def properties(self, node_id: int) -> dict[str, str]:
        """Return the usual properties with the proxy's ports for the other nodes."""
        client = f"PLAINTEXT://127.0.0.1:{self.ports[node_id]}"
        own = f"INTERNAL://127.0.0.1:{self._internal_ports[node_id]},CONTROLLER://127.0.0.1:{self.controller_ports[node_id]}"
        told = f"INTERNAL://127.0.0.1:{self._brokers[node_id]},CONTROLLER://127.0.0.1:{self._controllers[node_id]}"
        return super().properties(node_id) | {
            "listeners": f"{client},{own}",
            "advertised.listeners": f"{client},{told}",
            "controller.quorum.voters": ",".join(f"{node}@127.0.0.1:{port}" for node, port in self._controllers.items()),
        }


class NetDisturber(Disturber):
    """A Disturber of the network. After each disturbance, every partition must accept records again."""

    def __init__(self, nodes: LinkedNodes, senders: list[Sender], seed: int) -> None:
        super().__init__(nodes, senders, seed)
        self.links = nodes.links
        self.slowest_s = 0.0

    def kinds(self) -> list[Callable[[], None]]:
        return [self.cut_one_way, self.isolate, self.bridge, self.cut_all, self.lose, self.slow_down, self.narrow, self.reset]

    @contextmanager
    def _disturbed(self, what: str) -> Iterator[None]:
        """Keep the network for a while as the block makes it, and then heal it."""
        self._tell(what)
        yield
        self.links.changed()
        time.sleep(self._draw.uniform(0.5, 1.3 * SESSION_MS / 1000))
        self._tell("the network is whole")
        self.links.heal()
        self._check_available()

    def _pair(self) -> tuple[int, int]:
        first, second = self._draw.sample(self.nodes.ids, 2)
        return first, second

    def cut_one_way(self) -> None:
        """Lose everything that one node sends to another node, or to both others."""
        by, to = self._pair()
        others = [node for node in self.nodes.ids if node != by] if self._draw.random() < 0.5 else [to]
        with self._disturbed(f"nothing gets from node {by} to {others}"):
            for node in others:
                self.links.wire(by, node).is_cut = True

    def isolate(self) -> None:
        """Cut a node off from the other nodes, but not from the clients."""
        alone = self._draw.choice(self.nodes.ids)
        with self._disturbed(f"node {alone} is alone"):
            self._cut([(alone, node) for node in self.nodes.ids if node != alone])

    def bridge(self) -> None:
        """Cut the connection between two nodes. The third node still reaches both and does not know about the cut."""
        first, second = self._pair()
        with self._disturbed(f"nodes {first} and {second} don't reach each other"):
            self._cut([(first, second)])

    def cut_all(self) -> None:
        """Cut all nodes off from each other."""
        with self._disturbed("every node is alone"):
            self._cut([(1, 2), (2, 3), (1, 3)])

    def _cut(self, pairs: list[tuple[int, int]]) -> None:
        for pair in pairs:
            for wire in self.links.wires(*pair):
                wire.is_cut = True

    def lose(self) -> None:
        """Lose packets on some connections or on all."""
        loss = self._draw.choice((0.02, 0.2))
        pairs = self._some_pairs()
        with self._disturbed(f"{loss:.0%} of what is sent is lost: {pairs}"):
            for pair in pairs:
                self.links.wire(*pair).loss = loss

    def slow_down(self) -> None:
        """Delay packets on some connections or on all."""
        delay_s = self._draw.choice((0.02, 0.3))
        pairs = self._some_pairs()
        with self._disturbed(f"{delay_s} s later: {pairs}"):
            for pair in pairs:
                self.links.wire(*pair).delay_s = delay_s

    def narrow(self) -> None:
        """Limit some connections or all to less than what is sent."""
        pairs = self._some_pairs()
        with self._disturbed(f"20 KB a second: {pairs}"):
            for pair in pairs:
                self.links.wire(*pair).bytes_per_s = 20_000

    def _some_pairs(self) -> list[tuple[int, int]]:
        every = [(by, to) for by in self.nodes.ids for to in self.nodes.ids if by != to]
        return every if self._draw.random() < 0.3 else self._draw.sample(every, self._draw.choice((1, 2)))

    def reset(self) -> None:
        """Reset the connections between two nodes several times."""
        first, second = self._pair()
        self._tell(f"connections between nodes {first} and {second} break")
        for _ in range(self._draw.randint(1, 4)):
            self.links.reset(first, second)
            time.sleep(self._draw.uniform(0.0, 0.5))
        self._check_available()

    def _check_available(self) -> None:
        """Wait until every partition has accepted a record that was sent after this call, from every sender."""
        began = time.monotonic()
        wanted = [dict(sender.sent) for sender in self.senders]
        while missing := [
            (sender.number, partition)
            for sender, sent in zip(self.senders, wanted, strict=True)
            for partition in range(sender.partitions)
            if sender.acknowledged[partition] + len(sender.unanswered[partition]) <= sent.get(partition, 0)
        ]:
            passed = time.monotonic() - began
            assert passed < SESSION_MS / 1000, f"{passed:.1f} s behind the cut nothing is taken of (sender, partition) {missing}"
            time.sleep(0.02)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        self._tell(f"all partitions take records after {time.monotonic() - began:.2f} s")


@pytest.mark.timeout(3 * 3600)
def test_nothing_acknowledged_is_lost(tmp_path: Path, minutes: float | None, seed_count: int | None) -> None:
    seed = 20261122 if seed_count is None else seed_count
    links = Links(seed)
    nodes = LinkedNodes(tmp_path, links)
    with links, nodes:
        create_topic(nodes.bootstrap, TOPIC, PARTITIONS, REPLICAS)
        senders = [Sender(number, nodes.bootstrap) for number in range(SENDERS)]
        disturber = NetDisturber(nodes, senders, seed)
        deadline = time.monotonic() + 60 * (DEFAULT_MINUTES if minutes is None else minutes)
        for sender in senders:
            sender.start()
        try:
            while time.monotonic() < deadline:
                disturber.disturb()
            wait_in_sync(nodes, TOPIC)
            for sender in senders:
                sender.end()
            count = check_read_back(nodes, senders)
            wait_in_sync(nodes, TOPIC)
        except BaseException as error:
            error.add_note(f"seed {seed}\n" + disturber.life())
            raise
        assert count > 1_000
        assert links.seen >= {(by, to) for by in nodes.ids for to in nodes.ids if by != to}
        check_words(nodes)
        for node in nodes.ids:
            nodes.kill(node)
        check_replicas_equal(nodes, PARTITIONS)
