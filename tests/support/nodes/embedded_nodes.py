"""Whole nodes of kops in this process, on loopback. All run on one loop in a thread. Each is broker and controller.

with EmbeddedNodes(tmp_path, 3) as nodes:                   # formatted, started, all of them serve
    nodes.kill(2); nodes.open(2); nodes.wait_ready(2)       # kill -9, and again on the same ports and directories
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from kops.broker.controller_link.status import BrokerState, NodeStatus
from kops.broker.life.node import Node
from kops.broker.network.events.loop import Loop
from kops.broker.quorum.format import FormatOptions, format_node
from kops.config import BrokerConfig
from kops.errors import KopsError
from kops.files import Files, OsFiles
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from kops.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig
from kops.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsTopic
from kops.protocol.messages.metadata_request import MetadataRequestTopic
from kops.protocol.messages.metadata_response import MetadataResponsePartition
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from tests.support.kafka.real_broker import SMALL
from tests.support.nodes.controllers import ask
from tests.support.nodes.networking import PATIENCE_S, Client, LoopThread
from tests.support.parts.controlling import CLUSTER_ID
from tests.support.parts.managing import batch
from tests.support.ports import free_ports

M = TypeVar("M", bound=Message)
PATIENT = {"controller.quorum.fetch.timeout.ms": "6000", "controller.quorum.request.timeout.ms": "6000"}
EARLIEST, LATEST = -2, -1
PRODUCE_VERSION, LIST_OFFSETS_VERSION = 9, 7


class EmbeddedNode:
    """One node. `states` has the states that it has reported, `failure` is the reason if it ended by itself."""

    def __init__(self, thread: LoopThread, properties: Mapping[str, str], files: Files) -> None:
        self.thread = thread
        self.properties = dict(properties)
        self.files = files
        self.node: Node | None = None
        self.states: list[NodeStatus] = []
        self.failure: str | None = None
        self.is_ready = False

    @property
    def running(self) -> Node:
        assert self.node is not None
        return self.node

    def open(self) -> None:
        """Start. This runs on the loop. Raises KopsError."""
        self.states.clear()
        self.failure = None
        self.is_ready = False
        self.node = Node(self.thread.loop, BrokerConfig.from_properties(self.properties), files=self.files, on_state=self.states.append)
        self.node.on_ready = self._ready
        self.node.on_failed = self._failed
        self.node.start()

    def kill(self) -> None:
        """End at once, without a stop. This runs on the loop."""
        if self.node is not None:
            self.node.kill()
            self.node = None

    def _ready(self) -> None:
        self.is_ready = True

    def _failed(self, reason: str) -> None:
        self.failure = reason


class EmbeddedNodes:
    """Nodes 1 to `count` below `root`, formatted and, unless `start` is False, started.

    `settings` are further lines of each node's settings. `log_dirs` are the names of a node's log directories below its folder, as if they
    were disks. `loop` is the nodes' loop; the default is a plain one.
    """

    def __init__(
        self,
        root: Path,
        count: int = 1,
        *,
        settings: Mapping[str, object] | None = None,
        log_dirs: Sequence[str] = ("disk1",),
        files: Files | None = None,
        start: bool = True,
        loop: Loop | None = None,
    ) -> None:
        self.thread = LoopThread(loop)
        ports = free_ports(2 * count)
        self.ports = dict(enumerate(ports[:count], 1))
        self.nodes: dict[int, EmbeddedNode] = {}
        voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in enumerate(ports[count:], 1))
        try:
            for node_id, port in self.ports.items():
                listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{ports[count + node_id - 1]}"
                dirs = ",".join(str(root / f"node-{node_id}" / name) for name in log_dirs)
                self.add(node_id, {"controller.quorum.voters": voters, "listeners": listeners, "log.dirs": dirs, **(settings or {})}, files)
            if start:
                self.format()
                for node_id in self.nodes:
                    self.open(node_id)
                for node_id in self.nodes:
                    self.wait_ready(node_id)
        except BaseException:
            self.close()
            raise

    def add(self, node_id: int, settings: Mapping[str, object], files: Files | None = None) -> None:
        """Add one more node without starting it."""
        values: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": node_id,
            "controller.listener.names": "CONTROLLER",
            **SMALL,
            **PATIENT,
            **settings,
        }
        properties = {name: str(value) for name, value in values.items()}
        self.nodes[node_id] = EmbeddedNode(self.thread, properties, OsFiles() if files is None else files)

    def format(self) -> None:
        """Format the directories of all nodes."""
        for node in self.nodes.values():
            config = BrokerConfig.from_properties(node.properties)
            format_node(OsFiles(), config, FormatOptions(CLUSTER_ID), now_ms=self.thread.loop.now_ms())

    # life -------------------------------------------------------------------------------------------------------------------------

    def open(self, node_id: int) -> None:
        """Start a node (again). Raises KopsError."""
        self.thread.call(self.nodes[node_id].open)

    def wait_ready(self, node_id: int) -> None:
        """Wait until a node serves, or has ended by itself (KopsError)."""
        node = self.nodes[node_id]
        self.wait_for(lambda: node.is_ready or node.failure is not None)
        if node.failure is not None:
            raise KopsError(node.failure)

    def stop(self, node_id: int) -> None:
        """Stop a node cleanly."""
        ended = threading.Event()
        self.thread.call(lambda: self.nodes[node_id].running.shut_down(ended.set))
        assert ended.wait(PATIENCE_S)
        self.nodes[node_id].node = None

    def kill(self, node_id: int) -> None:
        """End a node as kill -9 does."""
        self.thread.call(self.nodes[node_id].kill)

    def status(self, node_id: int) -> NodeStatus:
        """Return the status that a node reports."""
        return self.thread.call(self.nodes[node_id].running.status)

    def is_running(self, node_id: int) -> bool:
        """Return whether a node's broker is in the state RUNNING. This must run in the loop's thread."""
        node = self.nodes[node_id].node
        return node is not None and node.status().state is BrokerState.RUNNING

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds. It is checked on the loop."""
        self.thread.wait_for(holds)

    def close(self) -> None:
        for node in self.nodes.values():
            self.thread.call(node.kill)
        self.thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # what clients do --------------------------------------------------------------------------------------------------------------

    def ask(self, node_id: int, request: Message, response: type[M], version: int | None = None) -> M:
        """Send one request to a node over a connection of its own."""
        with Client(self.thread.call(lambda: self.nodes[node_id].running.bound_port("PLAINTEXT"))) as client:
            return ask(client, request, response, version)

    def create_topic(self, node_id: int, name: str, *, partitions: int = 1, factor: int = 1, **configs: object) -> None:
        """Create a topic, and wait until every running node knows it."""
        settings = [CreatableTopicConfig(key.replace("_", "."), str(value)) for key, value in configs.items()]
        request = CreateTopicsRequest([CreatableTopic(name, partitions, factor, configs=settings)], 60_000)
        answer = self.ask(node_id, request, CreateTopicsResponse)
        assert [topic.error_code for topic in answer.topics] == [0], answer
        self.wait_for(lambda: all(node.node is None or _knows(node.node, name) for node in self.nodes.values()))

    def partition(self, node_id: int, topic: str, partition: int = 0) -> MetadataResponsePartition:
        """Return a partition as a node knows it."""
        answer = self.ask(node_id, MetadataRequest([MetadataRequestTopic(name=topic)]), MetadataResponse, 9)
        return next(found for found in answer.topics[0].partitions if found.partition_index == partition)

    def produce(self, node_id: int, topic: str, count: int, *, partition: int = 0, acks: int = -1) -> tuple[int, int]:
        """Append some records in one batch. Return the error code and the offset of the first one."""
        data = [TopicProduceData(topic, partition_data=[PartitionProduceData(partition, batch(count))])]
        answer = self.ask(node_id, ProduceRequest(None, acks, 30_000, data), ProduceResponse, PRODUCE_VERSION)
        told = answer.responses[0].partition_responses[0]
        return told.error_code, told.base_offset

    def offset(self, node_id: int, topic: str, partition: int = 0, *, which: int = LATEST) -> int:
        """Return the first or last offset of a partition, as its leader reports it to consumers, or the negative error code."""
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(partition, -1, which)])])
        told = self.ask(node_id, request, ListOffsetsResponse, LIST_OFFSETS_VERSION).topics[0].partitions[0]
        return -told.error_code if told.error_code else told.offset

    def wait_for_isr(self, topic: str, members: set[int], partition: int = 0) -> None:
        """Wait until every running node knows this set of in-sync replicas."""
        self.wait_for(lambda: all(_isr(node.node, topic, partition) == members for node in self.nodes.values() if node.node is not None))

    def wait_for_replicas_in_sync(self, node_id: int, topic: str, partition: int = 0) -> None:
        """Wait until a node knows that all replicas of a partition are in sync."""

        def holds() -> bool:
            broker = self.nodes[node_id].running.broker
            assert broker is not None
            found = broker.parts.cache.partition(topic, partition)
            return found is not None and set(found.isr) == set(found.replicas)

        self.wait_for(holds)


def _isr(node: Node, topic: str, partition: int) -> set[int]:
    assert node.broker is not None, "a controller alone"
    found = node.broker.parts.cache.partition(topic, partition)
    return set() if found is None else set(found.isr)


def _knows(node: Node, topic: str) -> bool:
    return node.broker is None or topic in node.broker.parts.cache.image.topics.by_name
