"""Replicas of brokers on one loop that follow each other over TCP, with their logs on disks."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from kops.broker.apis.data.produce import handle_produce
from kops.broker.network.peer import PeerSettings
from kops.broker.network.settings import NetworkSettings
from kops.broker.network.socket_server import RequestContext, SocketServer
from kops.broker.replicas.fetcher import LeaderConnection, connect_by
from kops.files import OsFiles
from kops.protocol import api_keys
from kops.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, FenceBrokerRecord, ProduceRequest, ProduceResponse
from kops.protocol.messages.api_versions_response import ApiVersion
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from kops.replication.following.fetcher_manager import BrokerEndPoint
from tests.support.nodes.networking import Client, LoopThread, loopback
from tests.support.parts.managing import Broker as Disks
from tests.support.parts.managing import batch
from tests.support.parts.replicas import HANDLERS, TOPIC_ID, TP, ReplicaBroker, World

SERVED = {**HANDLERS, 0: handle_produce}
Result = TypeVar("Result")


class LoopbackWorld(World):
    """Brokers on one loop in a thread of its own. Only `call` may touch them."""

    def __init__(self, path: Path, thread: LoopThread, *node_ids: int, **settings: Any) -> None:
        self.path = path
        self.thread = thread
        self.servers: dict[int, SocketServer] = {}
        self.broker_settings = {"replica_fetch_wait_max_ms": 100, "replica_fetch_backoff_ms": 20, **settings}
        for node_id in node_ids:
            self.servers[node_id] = self._serve(node_id)
        super().__init__(*node_ids, **self.broker_settings)

    def _serve(self, node_id: int, port: int = 0) -> SocketServer:
        def handle(context: RequestContext) -> None:
            if isinstance(context.request.message, ApiVersionsRequest):
                keys = [ApiVersion(key, *_range(key)) for key in (*SERVED, api_keys.API_VERSIONS)]
                context.respond(ApiVersionsResponse(api_keys=keys))
                return
            SERVED[context.request.api.key](self.brokers[node_id].parts, context)

        server = SocketServer(self.thread.loop, NetworkSettings(listeners=loopback()), handle)
        server.start()
        return server

    def make_loop(self) -> Any:
        return self.thread.loop

    def make_disks(self, node_id: int, log_dirs: Sequence[str]) -> Disks:
        (self.path / str(node_id)).mkdir(exist_ok=True)
        return Disks(OsFiles(), [str(self.path / str(node_id) / "a")], clock=cast("Any", self.loop.now_ms))

    def connect(self, source: int, leader: BrokerEndPoint, settings: PeerSettings) -> LeaderConnection:
        return connect_by(self.loop, random.Random(source).random)(leader, settings)

    def address(self, node_id: int) -> tuple[str, int]:
        return "127.0.0.1", self.servers[node_id].bound_port("PLAINTEXT")

    def stop(self, node_id: int) -> ReplicaBroker:
        """Stop a broker and close its connections."""
        broker = self.brokers.pop(node_id)
        self.servers.pop(node_id).stop()
        broker.manager.shut_down()
        broker.disks.stop()
        return broker

    def start(self, broker: ReplicaBroker) -> ReplicaBroker:
        """Start it again, at another port."""
        self.servers[broker.node_id] = self._serve(broker.node_id)
        return self.revive(broker, **self.broker_settings)

    def end(self) -> None:
        """Close everything."""
        for node_id in list(self.brokers):
            self.stop(node_id)


def _range(key: int) -> tuple[int, int]:
    versions = api_keys.by_key(key).versions
    return versions.start, versions.stop - 1


class Cluster:
    """The world, seen from outside its loop."""

    def __init__(self, path: Path, thread: LoopThread, node_ids: Sequence[int]) -> None:
        self.thread = thread
        self.world = thread.call(lambda: LoopbackWorld(path, thread, *node_ids))
        thread.call(lambda: self.world.create_topic(node_ids))

    def call(self, work: Callable[[LoopbackWorld], Result]) -> Result:
        """Run a function with the world on its loop."""
        return self.thread.call(lambda: work(self.world))

    def wait_for(self, holds: Callable[[LoopbackWorld], bool]) -> None:
        """Wait until a condition holds."""
        reached = threading.Event()

        def look() -> None:
            if holds(self.world):
                reached.set()
            elif not reached.is_set():
                self.thread.loop.call_later(5, look)

        self.thread.loop.call_from_thread(look)
        assert reached.wait(120), "it never came to hold"

    def produce(self, node_id: int, data: bytes, acks: int = -1) -> tuple[int, int]:
        """Produce over a connection. Return (error code, base offset)."""
        with Client(self.call(lambda world: world.address(node_id))[1]) as client:
            topics = [TopicProduceData(topic_id=TOPIC_ID, partition_data=[PartitionProduceData(0, data)])]
            client.send(ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=topics), 13)
            response = client.receive()
        assert response is not None
        answer = response.message
        assert isinstance(answer, ProduceResponse)
        row = answer.responses[0].partition_responses[0]
        return row.error_code, row.base_offset


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    thread = LoopThread()
    made: list[Cluster] = []

    def make(*node_ids: int) -> Cluster:
        made.append(Cluster(tmp_path, thread, node_ids))
        return made[0]

    try:
        yield make
        for cluster in made:
            cluster.call(lambda world: world.end())
    finally:
        thread.close()


def same_logs(world: LoopbackWorld, end_offset: int) -> bool:
    """Return whether all logs end there, with everything replicated."""
    return all(broker.log.log_end_offset == broker.log.high_watermark == end_offset for broker in world.brokers.values())


def test_three_replicas_over_tcp(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = make_cluster(1, 2, 3)
    for number in range(20):
        assert cluster.produce(1, batch(5, value=b"%d" % number * 1000)) == (0, 5 * number)
    cluster.wait_for(lambda world: same_logs(world, 100))
    segments = [(tmp_path / str(node_id) / "a/orders-0/00000000000000000000.log").read_bytes() for node_id in (1, 2, 3)]
    assert segments[0] == segments[1] == segments[2]
    assert cluster.produce(2, batch(1)) == (6, -1)  # NOT_LEADER_OR_FOLLOWER
    assert cluster.produce(1, batch(1), acks=1) == (0, 100)


def test_a_leader_goes_and_comes_back_with_what_nobody_else_has(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(1, 2)
    assert cluster.produce(1, batch(3)) == (0, 0)
    cluster.wait_for(lambda world: same_logs(world, 3))
    first = cluster.call(lambda world: world.stop(2))
    assert cluster.produce(1, batch(2), acks=1) == (0, 3)
    old_leader = cluster.call(lambda world: world.stop(1))
    cluster.call(lambda world: world.change(leader=2, isr=[2]))
    cluster.call(lambda world: world.start(first))
    assert cluster.produce(2, batch(1)) == (0, 3)
    back = cluster.call(lambda world: world.start(old_leader))
    cluster.wait_for(lambda world: same_logs(world, 4))
    cluster.wait_for(lambda world: world.brokers[2].manager.hosted.online[TP].in_sync_replica_ids == {1, 2})
    assert cluster.call(lambda world: back.log.epochs.entries == world.brokers[2].log.epochs.entries)
    assert cluster.produce(2, batch(1)) == (0, 4)


def test_a_follower_stops_and_is_taken_out_and_in(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(1, 2)
    assert cluster.produce(1, batch(1)) == (0, 0)
    gone = cluster.call(lambda world: world.stop(2))
    cluster.call(lambda world: world.replay(FenceBrokerRecord(2, world.epochs[2])))
    cluster.call(lambda world: world.change(isr=[1]))
    assert cluster.produce(1, batch(1)) == (0, 1)
    cluster.call(lambda world: world.start(gone))
    cluster.wait_for(lambda world: same_logs(world, 2))
    cluster.wait_for(lambda world: world.brokers[1].manager.hosted.online[TP].in_sync_replica_ids == {1, 2})
