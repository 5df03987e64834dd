"""A quorum of kops nodes in one process. All run on one loop, each with a server on loopback, a directory on disk and a RaftManager."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kops.broker.network.settings import ListenerSettings, NetworkSettings
from kops.broker.network.socket_server import RequestContext, SocketServer
from kops.broker.quorum.raft_log import METADATA_DIR, METADATA_TOPIC_ID, MetadataLogSettings
from kops.broker.quorum.raft_manager import RAFT_REQUESTS, RaftManager
from kops.files import OsFiles
from kops.metadata.raft.log import control_records as control
from kops.metadata.raft.log.log import BOOTSTRAP_SNAPSHOT_ID, SnapshotSource
from kops.metadata.raft.node.actions import Identity
from kops.metadata.raft.voters.replica import Address, Endpoints, LeaderAndEpoch, Node, ReplicaKey
from kops.metadata.raft.voters.settings import QuorumSettings
from kops.metadata.raft.voters.voter_set import NO_VOTERS, VoterNode, VoterSet
from kops.protocol.api_keys import API_KEYS, Listener
from kops.protocol.declaration import Message
from kops.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from kops.protocol.messages.api_versions_response import ApiVersion, SupportedFeatureKey
from kops.records import Batch
from kops.storage.formats.kafka_uuid import uuid_bytes
from kops.storage.formats.names import METADATA_TOPIC, log_file_name
from tests.support.nodes.networking import PATIENCE_S, LoopThread

LISTENER = "CONTROLLER"
SETTINGS = QuorumSettings(fetch_timeout_ms=3_000, request_timeout_ms=3_000)


class Told:
    """A listener that keeps what it gets: the values of records, where snapshots began, and leaders."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.next_offset = 0
        self.snapshots: list[int] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.is_shut_down = False

    def on_snapshot(self, snapshot: SnapshotSource) -> None:
        self.next_offset = snapshot.snapshot_id.offset
        self.snapshots.append(self.next_offset)
        self.values.clear()

    def on_committed(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            assert batch.base_offset == self.next_offset
            self.next_offset = batch.last_offset + 1
            if not batch.is_control:
                self.values += [record.value or b"" for record in batch.records()]

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)

    def on_shut_down(self) -> None:
        self.is_shut_down = True


def api_versions() -> ApiVersionsResponse:
    """Return what a controller's listener reports about its APIs."""
    served = [api for api in API_KEYS if Listener.CONTROLLER in api.listeners]
    ranges = [(api.key, api.advertised_versions(Listener.CONTROLLER)) for api in served]
    keys = [ApiVersion(key, versions.start, versions.stop - 1) for key, versions in ranges]
    return ApiVersionsResponse(api_keys=keys, supported_features=[SupportedFeatureKey("kraft.version", 0, 1)])


class QuorumNode:
    """One node. Its server exists from the beginning, so that its port is known. It has a manager between `open` and `close`."""

    def __init__(self, quorum: LocalQuorum, node_id: int, directory: Path) -> None:
        self.quorum = quorum
        self.key = ReplicaKey(node_id, node_id.to_bytes(16, "big"))
        self.directory = directory
        self.port = 0
        self.server = self._bind()
        self.port = self.server.bound_port(LISTENER)
        self.manager: RaftManager | None = None
        self.told = Told()

    def _bind(self) -> SocketServer:
        listener = ListenerSettings(LISTENER, "127.0.0.1", self.port, Listener.CONTROLLER)
        return SocketServer(self.quorum.thread.loop, NetworkSettings(listeners=(listener,)), self._handle)

    def _handle(self, context: RequestContext) -> None:
        message: Message = context.request.message
        if isinstance(message, ApiVersionsRequest):
            context.respond(api_versions())
        elif self.manager is not None and isinstance(message, RAFT_REQUESTS):
            self.manager.handle(context)
        else:
            context.close_connection()

    @property
    def endpoints(self) -> Endpoints:
        return Endpoints({LISTENER: Address("127.0.0.1", self.port)})

    @property
    def raft(self) -> RaftManager:
        assert self.manager is not None
        return self.manager

    def open(self, static_voters: VoterSet, bootstrap: Sequence[Node]) -> None:
        """Start on the contents of the directory."""
        if self.server.connection_count == 0 and self.manager is None and self.told.leaders:
            self.server = self._bind()
        identity = Identity(
            node_id=self.key.id,
            directory_id=self.key.directory_id or b"",
            cluster_id="cluster",
            topic=METADATA_TOPIC,
            topic_id=uuid_bytes(METADATA_TOPIC_ID),
            listener=LISTENER,
            listeners=self.endpoints,
            static_voters=static_voters,
            bootstrap=bootstrap,
            can_become_voter=True,
            settings=SETTINGS,
            draw=random.Random(self.key.id).randrange,
        )
        self.told = Told()
        settings = MetadataLogSettings(internal_segment_bytes=4_000, max_retention_bytes=3_000)
        manager = RaftManager(self.quorum.thread.loop, identity, OsFiles(), str(self.directory), log_settings=settings)
        manager.register(self.told)
        self.manager = manager
        self.server.start()
        manager.start()

    def close(self) -> None:
        """End at once, without a stop."""
        self.server.stop()
        if self.manager is not None:
            self.manager.close()
            self.manager = None


class LocalQuorum:
    """Nodes 1 to `count` with their directories below `root`, started. Their kraft.version is 0 or 1."""

    def __init__(self, root: Path, count: int, *, kraft_version: int) -> None:
        self.thread = LoopThread()
        self.nodes: dict[int, QuorumNode] = {}
        try:
            for node_id in range(1, count + 1):
                directory = root / f"node-{node_id}"
                (directory / METADATA_DIR).mkdir(parents=True)
                self.nodes[node_id] = self.thread.call(lambda id=node_id, where=directory: QuorumNode(self, id, where))  # type: ignore[misc]
            self.static_voters = NO_VOTERS
            if kraft_version == 0:
                self.static_voters = VoterSet.static(LISTENER, {id: Address("127.0.0.1", node.port) for id, node in self.nodes.items()})
            else:
                self._format()
            for node_id in self.nodes:
                self.open(node_id)
        except BaseException:
            self.close()
            raise

    def _format(self) -> None:
        """Write the snapshot that the directories of a dynamic quorum begin with."""
        voters = VoterSet(VoterNode(node.key, node.endpoints, 0, 1) for node in self.nodes.values())
        records = [control.snapshot_header(0), control.kraft_version(1), control.voters(voters)]
        data = control.control_batch(records, base_offset=0, epoch=0, now_ms=0)
        data += control.control_batch([control.snapshot_footer()], base_offset=3, epoch=0, now_ms=0)
        name = log_file_name(BOOTSTRAP_SNAPSHOT_ID.offset, "checkpoint", epoch=BOOTSTRAP_SNAPSHOT_ID.epoch)
        for node in self.nodes.values():
            (node.directory / METADATA_DIR / name).write_bytes(data)

    def open(self, node_id: int) -> None:
        """Start a node (again)."""
        bootstrap = [Node(-1 - id, "127.0.0.1", node.port) for id, node in self.nodes.items()]
        self.thread.call(lambda: self.nodes[node_id].open(self.static_voters, bootstrap))

    def stop(self, node_id: int, *, cleanly: bool) -> None:
        """Stop a node, after it has handed over its leadership or at once."""
        node = self.nodes[node_id]
        if cleanly:
            ended = threading.Event()
            self.thread.call(lambda: node.raft.shut_down(60_000, lambda timed_out: ended.set()))
            assert ended.wait(PATIENCE_S)
        self.thread.call(node.close)

    def append(self, values: Sequence[bytes]) -> int:
        """Append at the leader as soon as there is one. Return the leader's node id."""
        appended: list[int] = []

        def try_all() -> bool:
            for node in self.nodes.values():
                if node.manager is not None and node.raft.node.is_leader:
                    node.raft.prepare_append(node.raft.node.state.epoch, values)
                    node.raft.schedule_append()
                    appended.append(node.key.id)
                    return True
            return False

        self.wait_for(try_all)
        return appended[0]

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds. It is checked on the loop, and not again once it holds."""
        reached = threading.Event()

        def look() -> None:
            if holds():
                reached.set()
            elif not given_up.is_set():
                self.thread.loop.call_later(10, look)

        given_up = threading.Event()
        self.thread.loop.call_from_thread(look)
        try:
            assert reached.wait(PATIENCE_S), "it never came to hold"
        finally:
            given_up.set()

    def wait_for_values(self, values: Sequence[bytes], *node_ids: int) -> None:
        """Wait until all of these nodes (default: all) have got exactly these records."""
        nodes = [self.nodes[id] for id in node_ids or self.nodes]
        self.wait_for(lambda: all(node.told.values == list(values) for node in nodes))

    def close(self) -> None:
        for node in self.nodes.values():
            self.thread.call(node.close)
        self.thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
