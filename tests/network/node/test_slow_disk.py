"""A node whose disk hangs. Its loop continues, and nothing is acknowledged before it is on disk."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kops.broker.life import broker_server
from kops.broker.quorum.raft_log import METADATA_DIR
from kops.broker.quorum.raft_manager import RaftManager
from kops.errors import KopsError
from kops.metadata.raft.log.log import SnapshotSource
from kops.metadata.raft.voters.replica import LeaderAndEpoch
from kops.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from kops.protocol.messages.create_topics_request import CreatableTopic
from kops.records import Batch
from kops.storage.background.work import SideWork
from kops.storage.formats.checkpoints import TopicPartition
from kops.storage.start.log_dirs import CLEAN_SHUTDOWN
from kops.storage.unified_log import UnifiedLog
from tests.support.nodes.embedded_nodes import EmbeddedNodes
from tests.support.nodes.networking import PATIENCE_S, Client
from tests.support.nodes.slow_files import Gate, SlowFiles

CREATE_TOPICS_VERSION = CreateTopicsRequest.VERSIONS[-1]


def is_created(client: Client) -> bool:
    """Return whether the topic is created, once the answer has come."""
    response = client.receive()
    assert response is not None
    assert isinstance(response.message, CreateTopicsResponse)
    return [topic.error_code for topic in response.message.topics] == [0]


def test_a_sync_of_the_metadata_log_holds_up_metadata_only(tmp_path: Path) -> None:
    gate = Gate(lambda path: METADATA_DIR in path)
    with EmbeddedNodes(tmp_path, files=SlowFiles(gate)) as nodes:
        nodes.create_topic(1, "orders")
        raft = nodes.nodes[1].running.shared.raft  # type: ignore[union-attr]
        gate.shut()
        try:
            with Client(nodes.ports[1]) as client:
                request = CreateTopicsRequest([CreatableTopic("late", 1, 1)], 60_000)
                client.send(request, CREATE_TOPICS_VERSION)
                assert gate.reached.wait(PATIENCE_S)
                for number in range(5):
                    assert nodes.produce(1, "orders", 1) == (0, number)
                assert nodes.offset(1, "orders") == 5
                # A write that is not on disk does not count.
                end, high_watermark = nodes.thread.call(lambda: (raft.log.end_offset, raft.node.high_watermark))
                assert high_watermark is not None
                assert end > high_watermark
                assert not nodes.thread.call(lambda: "late" in nodes.nodes[1].running.shared.image.topics.by_name)  # type: ignore[union-attr]
                gate.open()
                assert is_created(client)
        finally:
            gate.open()
        # A heartbeat or the next topic finds everything in order.
        nodes.create_topic(1, "next")


def test_a_sync_of_a_snapshot_holds_up_nobody(tmp_path: Path) -> None:
    """A node writes a snapshot of the metadata whose sync takes long. It still accepts records and topics."""
    gate = Gate(lambda path: METADATA_DIR in path and path.endswith(".checkpoint.part"))
    settings = {"metadata.log.max.record.bytes.between.snapshots": 1}
    with EmbeddedNodes(tmp_path, files=SlowFiles(gate), settings=settings) as nodes:
        raft = nodes.nodes[1].running.shared.raft  # type: ignore[union-attr]
        gate.shut()
        try:
            # Records of the cluster's start may have come before, so the next ones are enough for a snapshot.
            nodes.create_topic(1, "orders")
            assert gate.reached.wait(PATIENCE_S)
            before = nodes.thread.call(lambda: raft.log.latest_snapshot_id)
            nodes.create_topic(1, "late")
            assert [nodes.produce(1, topic, 1) for topic in ("orders", "late")] == [(0, 0), (0, 0)]
            assert nodes.thread.call(lambda: raft.log.latest_snapshot_id) == before, "what is not on the disk is no snapshot"
        finally:
            gate.open()
        nodes.wait_for(lambda: raft.log.latest_snapshot_id != before)


def fail_when_closing(raft: RaftManager, has_begun: threading.Event) -> Callable[[str], None]:
    """Return a function for `SlowFiles`: the next sync of the metadata log waits until its node is being closed, and then fails."""

    def fail(path: str) -> None:
        if METADATA_DIR in path and path.endswith(".log") and not has_begun.is_set():
            has_begun.set()
            deadline = time.monotonic() + PATIENCE_S
            while not raft.side_work._is_over:
                assert time.monotonic() < deadline, "the node was never stopped"
                time.sleep(0.005)
            raise OSError(errno.EIO, "broken", path)

    return fail


def test_a_sync_of_the_metadata_log_that_fails_while_the_node_stops_is_reported(tmp_path: Path) -> None:
    """The close waits for the thread. A sync of its own would succeed, although the disk does not have what was written."""
    files = SlowFiles(lambda path: None)
    with EmbeddedNodes(tmp_path, files=files) as nodes:
        raft = nodes.nodes[1].running.shared.raft  # type: ignore[union-attr]
        has_begun = threading.Event()
        nodes.thread.call(lambda: setattr(files, "before_sync", fail_when_closing(raft, has_begun)))
        with Client(nodes.ports[1]) as client:
            client.send(CreateTopicsRequest([CreatableTopic("late", 1, 1)], 60_000), CREATE_TOPICS_VERSION)
            assert has_begun.wait(PATIENCE_S)
            nodes.stop(1)
        failure = nodes.nodes[1].failure
        assert failure is not None
        assert "The metadata log can't be used any more" in failure


@pytest.mark.slow
def test_a_killed_node_keeps_its_metadata_directory_while_a_thread_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_server, "PATIENCE_WITH_THREADS_S", 0.05)
    gate = Gate(lambda path: METADATA_DIR in path)
    with EmbeddedNodes(tmp_path, files=SlowFiles(gate)) as nodes:
        nodes.create_topic(1, "orders")
        gate.shut()
        try:
            with Client(nodes.ports[1]) as client:
                client.send(CreateTopicsRequest([CreatableTopic("late", 1, 1)], 60_000), CREATE_TOPICS_VERSION)
                assert gate.reached.wait(PATIENCE_S)
                nodes.kill(1)
                assert client.receive() is None
            with pytest.raises(KopsError, match="lock"):
                nodes.open(1)
        finally:
            gate.open()
        open_when_free(nodes)
        # Only the process was killed, not the machine, so its writes are there.
        nodes.wait_for(lambda: "late" in nodes.nodes[1].running.shared.image.topics.by_name)  # type: ignore[union-attr]
        assert nodes.produce(1, "orders", 1) == (0, 0)


def open_when_free(nodes: EmbeddedNodes) -> None:
    """Start node 1 once its directories are no longer locked."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            nodes.open(1)
            break
        except KopsError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    nodes.wait_ready(1)


class Committed:
    """A RaftListener that keeps the ends of the batches that it gets at once."""

    def __init__(self) -> None:
        self.ends: list[int] = []

    def on_snapshot(self, snapshot: SnapshotSource) -> None:
        """Ignore the snapshot."""

    def on_committed(self, batches: Sequence[Batch]) -> None:
        self.ends.append(batches[-1].last_offset + 1)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Do nothing: no other node can lead."""

    def on_shut_down(self) -> None:
        """Do nothing: nothing follows."""


def test_what_comes_during_a_sync_shares_the_next(tmp_path: Path) -> None:
    gate = Gate(lambda path: METADATA_DIR in path)
    committed = Committed()
    with EmbeddedNodes(tmp_path, files=SlowFiles(gate)) as nodes:
        raft = nodes.nodes[1].running.shared.raft  # type: ignore[union-attr]
        gate.shut()
        clients = [Client(nodes.ports[1]) for _ in range(10)]
        try:
            for number, client in enumerate(clients):
                client.send(CreateTopicsRequest([CreatableTopic(f"topic-{number}", 1, 1)], 60_000), CREATE_TOPICS_VERSION)
                if not number:
                    assert gate.reached.wait(PATIENCE_S)
                    first_end = nodes.thread.call(lambda: raft.log.end_offset)
            # There are at least two records for each topic.
            nodes.wait_for(lambda: raft.log.end_offset >= first_end + 2 * (len(clients) - 1))
            nodes.thread.call(lambda: raft.register(committed))
            end, told = nodes.thread.call(lambda: (raft.log.end_offset, len(committed.ends)))
            gate.open()
            for client in clients:
                assert is_created(client)
        finally:
            gate.open()
            for client in clients:
                client.sock.close()
    # One is the sync that was held, and one more is for all the others.
    assert [offset >= end for offset in committed.ends[told : told + 2]] == [False, True]


def data_log(nodes: EmbeddedNodes, topic: str) -> UnifiedLog:
    """Return the log of a topic's first partition on node 1. Call it in the loop's thread."""
    broker = nodes.nodes[1].running.broker
    assert broker is not None
    return broker.parts.logs.current_logs[TopicPartition(topic, 0)]


def begin_flush(nodes: EmbeddedNodes, topic: str) -> None:
    """Let a side thread flush the content of a log."""
    nodes.thread.call(lambda: data_log(nodes, topic).flush_aside(data_log(nodes, topic).log_end_offset))


def test_a_sync_that_fails_while_the_node_stops_is_not_forgotten(tmp_path: Path) -> None:
    """The system reports a failed sync only once. The sync of the stop succeeds, and the next start must recover all the same."""
    has_begun, side_work = threading.Event(), list[SideWork]()

    def fail_at_the_stop(path: str) -> None:
        if side_work and path.endswith(".log") and "/orders-0/" in path and not has_begun.is_set():
            has_begun.set()
            deadline = time.monotonic() + PATIENCE_S
            while not side_work[0]._is_over:
                assert time.monotonic() < deadline, "the node was never stopped"
                time.sleep(0.005)
            raise OSError(errno.EIO, "broken", path)

    with EmbeddedNodes(tmp_path, files=SlowFiles(fail_at_the_stop)) as nodes:
        nodes.create_topic(1, "orders")
        assert nodes.produce(1, "orders", 1) == (0, 0)
        log_dir = Path(nodes.thread.call(lambda: data_log(nodes, "orders").directory)).parent
        broker = nodes.nodes[1].running.broker
        assert broker is not None
        side_work.append(broker.tasks.side_work)
        begin_flush(nodes, "orders")
        assert has_begun.wait(PATIENCE_S)
        nodes.stop(1)
        assert not (log_dir / CLEAN_SHUTDOWN).exists()
        nodes.open(1)
        nodes.wait_ready(1)
        nodes.stop(1)
        assert (log_dir / CLEAN_SHUTDOWN).exists()


@pytest.mark.slow
def test_a_killed_node_keeps_its_directories_while_a_thread_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_server, "PATIENCE_WITH_THREADS_S", 0.05)
    gate = Gate(lambda path: "/orders-0/" in path)
    with EmbeddedNodes(tmp_path, files=SlowFiles(gate)) as nodes:
        nodes.create_topic(1, "orders")
        assert nodes.produce(1, "orders", 1) == (0, 0)
        gate.shut()
        try:
            begin_flush(nodes, "orders")
            assert gate.reached.wait(PATIENCE_S)
            nodes.kill(1)
            with pytest.raises(KopsError, match="lock"):
                nodes.open(1)
        finally:
            gate.open()
        open_when_free(nodes)
        assert nodes.produce(1, "orders", 1) == (0, 1)
