"""A quorum of kops controllers in one process, and clients for it.

Each node has a formatted directory and a ControllerServer. All run on one loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from kops.broker.controller.server import ControllerServer
from kops.broker.network.events.loop import Loop
from kops.broker.quorum.draws import random_uuid
from kops.broker.quorum.format import FormatOptions, format_node
from kops.broker.quorum.shared_server import SharedServer
from kops.config import BrokerConfig
from kops.files import OsFiles
from kops.protocol.declaration import Message
from kops.protocol.messages import BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationResponse
from kops.storage.formats.kafka_uuid import uuid_text
from tests.support.nodes.networking import PATIENCE_S, Client, LoopThread
from tests.support.parts.controlling import CLUSTER_ID, registration
from tests.support.ports import free_ports

M = TypeVar("M", bound=Message)
PATIENT = {"controller.quorum.fetch.timeout.ms": "6000", "controller.quorum.request.timeout.ms": "6000"}


class ControllerNode:
    """One node with its settings. It has a server between `open` and `close`."""

    def __init__(self, thread: LoopThread, config: BrokerConfig) -> None:
        self.thread = thread
        self.config = config
        self.server: ControllerServer | None = None

    @property
    def running(self) -> ControllerServer:
        assert self.server is not None
        return self.server

    def open(self) -> None:
        """Start on the contents of the directory. This runs on the loop."""
        server = ControllerServer(SharedServer(self.thread.loop, self.config, OsFiles()))
        server.start()
        self.server = server

    def kill(self) -> None:
        """End at once, without a stop. This runs on the loop."""
        if self.server is not None:
            self.server.close()
            self.server.shared.abandon()
            self.server = None


class Controllers:
    """Nodes 1 to `count` with their directories below `root`, formatted and, unless `start` is False, started."""

    def __init__(
        self,
        root: Path,
        count: int = 1,
        *,
        is_static: bool = False,
        settings: Mapping[str, str] | None = None,
        start: bool = True,
        loop: Loop | None = None,
    ) -> None:
        self.thread = LoopThread(loop)
        self.ports = dict(enumerate(free_ports(count), 1))
        self.nodes: dict[int, ControllerNode] = {}
        addresses = {node_id: f"127.0.0.1:{port}" for node_id, port in self.ports.items()}
        voters = [f"{node_id}@{address}" for node_id, address in addresses.items()]
        quorum = {"controller.quorum.voters": ",".join(voters)}
        initial = None
        if not is_static:
            quorum = {"controller.quorum.bootstrap.servers": ",".join(addresses.values())}
            initial = ",".join(f"{voter}:{uuid_text(random_uuid())}" for voter in voters)
        try:
            for node_id, address in addresses.items():
                properties = {
                    "process.roles": "controller",
                    "node.id": str(node_id),
                    "listeners": f"CONTROLLER://{address}",
                    "controller.listener.names": "CONTROLLER",
                    "log.dirs": str(root / f"node-{node_id}"),
                    **quorum,
                    **PATIENT,
                    **(settings or {}),
                }
                config = BrokerConfig.from_properties(properties)
                format_node(OsFiles(), config, FormatOptions(CLUSTER_ID, initial_controllers=initial), now_ms=self.thread.loop.now_ms())
                self.nodes[node_id] = ControllerNode(self.thread, config)
            if start:
                for node_id in self.nodes:
                    self.open(node_id)
        except BaseException:
            self.close()
            raise

    def add(self, root: Path, node_id: int) -> None:
        """Add one more node, format it without voters, and start it."""
        (self.ports[node_id],) = free_ports(1)
        own = {
            "node.id": str(node_id),
            "listeners": f"CONTROLLER://127.0.0.1:{self.ports[node_id]}",
            "log.dirs": str(root / f"node-{node_id}"),
        }
        config = BrokerConfig.from_properties({**self.nodes[1].config.properties, **own})
        format_node(OsFiles(), config, FormatOptions(CLUSTER_ID, no_initial_controllers=True), now_ms=self.thread.loop.now_ms())
        self.nodes[node_id] = ControllerNode(self.thread, config)
        self.open(node_id)

    def open(self, node_id: int) -> None:
        """Start a node (again)."""
        self.thread.call(self.nodes[node_id].open)

    def stop(self, node_id: int, *, cleanly: bool = True) -> None:
        """Stop a node, after it has handed over its leadership or at once."""
        node = self.nodes[node_id]
        if cleanly:
            ended = threading.Event()
            self.thread.call(lambda: node.running.shut_down(ended.set))
            assert ended.wait(PATIENCE_S)
        self.thread.call(node.kill)

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds. It is checked on the loop."""
        self.thread.wait_for(holds)

    def active_id(self) -> int:
        """Wait for an active controller that has written its first records. Return its node's id."""
        found: list[int] = []

        def look() -> bool:
            for node_id, node in self.nodes.items():
                if node.server is not None and node.server.is_active and node.server.shared.image.features.metadata_version is not None:
                    found.append(node_id)
                    return True
            return False

        self.wait_for(look)
        return found[0]

    def client(self, node_id: int) -> Client:
        """Return a connection to a node."""
        return Client(self.ports[node_id])

    def close(self) -> None:
        for node in self.nodes.values():
            self.thread.call(node.kill)
        self.thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def ask(client: Client, request: Message, response: type[M], version: int | None = None) -> M:
    """Send a request, in its latest version if none is given, and return its response."""
    client.send(request, type(request).VERSIONS[-1] if version is None else version)
    answer = client.receive()
    assert answer is not None, "the connection was closed"
    assert isinstance(answer.message, response)
    return answer.message


def register_broker(client: Client, broker_id: int) -> int:
    """Register a broker and send heartbeats until it is unfenced. Return its epoch."""
    registered = ask(client, registration(broker_id), BrokerRegistrationResponse)
    assert registered.error_code == 0
    epoch = registered.broker_epoch
    beat = BrokerHeartbeatRequest(broker_id, epoch, current_metadata_offset=1 << 40)
    assert not ask(client, beat, BrokerHeartbeatResponse).is_fenced
    return epoch
