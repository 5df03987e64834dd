"""Whole nodes on one loop: they serve, fail over, come back, shut down in order, lose disks, and report why they don't start."""

from __future__ import annotations

import errno
import os
import socket
import threading
from pathlib import Path

import pytest

from kops.broker.controller_link.status import BrokerState
from kops.broker.network.request_metrics import HISTOGRAMS
from kops.errors import KopsError
from kops.files import FaultyFiles, OsFiles
from kops.protocol.errors import by_name
from kops.protocol.messages import DeleteTopicsRequest, DeleteTopicsResponse, DescribeClusterRequest, DescribeClusterResponse
from kops.protocol.messages.delete_topics_request import DeleteTopicState
from kops.storage.formats.clean_shutdown import read_clean_shutdown
from kops.storage.unified_log import UnifiedLog
from tests.support.nodes.embedded_nodes import EARLIEST, EmbeddedNodes
from tests.support.nodes.networking import PATIENCE_S, Client, open_fds
from tests.support.nodes.node_view import NodeView
from tests.support.parts.managing import batch

HASTY = {"broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 300}


def test_a_node_alone_serves_and_keeps_what_it_has(tmp_path: Path) -> None:
    with EmbeddedNodes(tmp_path, settings=HASTY) as nodes:
        nodes.create_topic(1, "orders", partitions=2)
        assert nodes.produce(1, "orders", 3) == (0, 0)
        assert nodes.produce(1, "orders", 2) == (0, 3)
        status = nodes.status(1)
        assert status.state is BrokerState.RUNNING
        assert status.listeners["PLAINTEXT"] == ("127.0.0.1", nodes.ports[1])
        assert set(status.listeners) == {"PLAINTEXT", "CONTROLLER"}
        metrics = nodes.thread.call(nodes.nodes[1].running.metrics)
        assert metrics["kafka.server:type=KafkaServer,name=BrokerState"] == BrokerState.RUNNING.value
        assert metrics["kafka.server:type=ReplicaManager,name=LeaderCount"] == 2
        assert metrics["kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions"] == 0
        assert metrics["kafka.controller:type=KafkaController,name=GlobalPartitionCount"] == 2
        assert metrics["kafka.controller:type=KafkaController,name=ActiveControllerCount"] == 1
        produced = {name: value for name, value in metrics.items() if "RequestMetrics" in name and "request=Produce" in name}
        (requests,) = (name for name in produced if "name=RequestsPerSec" in name and ":" not in name.removeprefix("kafka.network:"))
        assert produced[requests] == produced["kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=Produce,error=NONE"] == 2
        times = [produced[f"kafka.network:type=RequestMetrics,name={kind},request=Produce:Count"] for kind in HISTOGRAMS]
        assert times == [2] * len(HISTOGRAMS)
        assert 0 < produced[f"{requests}:MeanRate"] < 1000
        assert 0 < produced["kafka.network:type=RequestMetrics,name=RequestBytes,request=Produce:Max"] < 1000
        assert all(value >= 0 for value in metrics.values())
        running = nodes.nodes[1].running
        nodes.stop(1)
        assert running.metrics() == {}
        told = [found.state for found in nodes.nodes[1].states]
        assert told[0] is BrokerState.STARTING
        assert told[-1] is BrokerState.NOT_RUNNING
        assert (tmp_path / "node-1/disk1/.kafka_cleanshutdown").exists()
        nodes.open(1)
        nodes.wait_ready(1)
        assert nodes.offset(1, "orders") == 5
        nodes.kill(1)
        assert not (tmp_path / "node-1/disk1/.kafka_cleanshutdown").exists()
        nodes.open(1)
        nodes.wait_ready(1)
        assert nodes.offset(1, "orders") == 5
        assert nodes.offset(1, "orders", which=EARLIEST) == 0
        assert nodes.produce(1, "orders", 1) == (0, 5)


def test_what_goes_through_topics_is_counted(tmp_path: Path) -> None:
    def told(name: str, topic: str | None = None) -> list[float]:
        key = f"kafka.server:type=BrokerTopicMetrics,name={name}" + ("" if topic is None else f",topic={topic}")
        return [nodes.thread.call(nodes.nodes[node_id].running.metrics).get(key, 0) for node_id in nodes.nodes]

    with EmbeddedNodes(tmp_path, 2) as nodes:
        nodes.create_topic(1, "orders", factor=2)
        nodes.create_topic(1, "clicks", factor=2)
        leader = nodes.partition(1, "orders").leader_id
        size = 0
        for count in (3, 4):
            nodes.produce(leader, "orders", count)
            size += len(batch(count))
        assert nodes.produce(3 - leader, "orders", 5)[0] == by_name("NOT_LEADER_OR_FOLLOWER").code
        with Client(nodes.thread.call(lambda: nodes.nodes[leader].running.bound_port("PLAINTEXT"))) as client:
            NodeView(client).partition("orders", 0)
        at_leader = [1.0, 0.0] if leader == 1 else [0.0, 1.0]
        assert told("MessagesInPerSec", "orders") == told("MessagesInPerSec") == [7 * each for each in at_leader]
        for name in ("BytesInPerSec", "BytesOutPerSec"):
            assert told(name, "orders") == told(name) == [size * each for each in at_leader]
        assert told("TotalProduceRequestsPerSec", "orders") == [1 + each for each in at_leader]
        assert told("FailedProduceRequestsPerSec") == told("FailedFetchRequestsPerSec") == [0, 0]
        assert sum(told("ReplicationBytesInPerSec")) == sum(told("ReplicationBytesOutPerSec")) == size
        assert sum(told("TotalFetchRequestsPerSec", "clicks")) > 0, "that of the follower"
        nodes.ask(1, DeleteTopicsRequest([DeleteTopicState("orders")], timeout_ms=30_000), DeleteTopicsResponse)
        nodes.wait_for(lambda: all("topic=orders" not in " ".join(node.running.metrics()) for node in nodes.nodes.values()))
        assert told("BytesInPerSec") == [size * each for each in at_leader]


def test_what_compressing_records_anew_costs_is_counted(tmp_path: Path) -> None:
    def told(name: str) -> float:
        key = f"kafka.network:type=RequestMetrics,name={name},request=Produce:Max"
        return float(nodes.thread.call(nodes.nodes[1].running.metrics)[key])

    with EmbeddedNodes(tmp_path) as nodes:
        nodes.create_topic(1, "plain")
        nodes.create_topic(1, "packed", compression_type="gzip")
        nodes.produce(1, "plain", 3)
        assert (told("TemporaryMemoryBytes"), told("MessageConversionsTimeMs")) == (0, 0)
        nodes.produce(1, "packed", 3)
        assert told("TemporaryMemoryBytes") > len(batch(3))
        assert told("MessageConversionsTimeMs") <= told("LocalTimeMs") <= told("TotalTimeMs")
        conversions = "kafka.server:type=BrokerTopicMetrics,name=ProduceMessageConversionsPerSec"
        metrics = nodes.thread.call(nodes.nodes[1].running.metrics)
        assert metrics[conversions] == metrics[f"{conversions},topic=packed"] == 3


def test_three_nodes_fail_over_and_come_together_again(tmp_path: Path) -> None:
    with EmbeddedNodes(tmp_path, 3, settings=HASTY) as nodes:
        nodes.create_topic(1, "orders", factor=3, min_insync_replicas=2)
        leader = nodes.partition(1, "orders").leader_id
        assert nodes.produce(leader, "orders", 10) == (0, 0)
        other = next(node_id for node_id in nodes.nodes if node_id != leader)
        nodes.kill(leader)
        nodes.wait_for_isr("orders", set(nodes.nodes) - {leader})
        new_leader = nodes.partition(other, "orders").leader_id
        assert new_leader != leader
        assert nodes.produce(new_leader, "orders", 5) == (0, 10)
        nodes.open(leader)
        nodes.wait_ready(leader)
        nodes.wait_for_isr("orders", set(nodes.nodes))
        nodes.kill(new_leader)
        nodes.wait_for_isr("orders", set(nodes.nodes) - {new_leader})
        last = nodes.partition(leader, "orders").leader_id
        assert nodes.offset(last, "orders") == 15
        nodes.open(new_leader)
        nodes.wait_ready(new_leader)
        nodes.wait_for_isr("orders", set(nodes.nodes))


def test_who_is_stopped_hands_over_first(tmp_path: Path) -> None:
    # If such a session had to expire, there would be no leader for a minute, so the leader must hand over.
    with EmbeddedNodes(tmp_path, 3, settings={"broker.session.timeout.ms": 60_000}) as nodes:
        nodes.create_topic(1, "orders", factor=3)
        leader = nodes.partition(1, "orders").leader_id
        assert nodes.produce(leader, "orders", 10) == (0, 0)
        nodes.stop(leader)
        other = next(node_id for node_id in nodes.nodes if node_id != leader)
        nodes.wait_for_isr("orders", set(nodes.nodes) - {leader})
        new_leader = nodes.partition(other, "orders").leader_id
        assert nodes.produce(new_leader, "orders", 1) == (0, 10)
        mark = read_clean_shutdown((tmp_path / f"node-{leader}/disk1/.kafka_cleanshutdown").read_bytes())
        assert mark.broker_epoch is not None
        brokers = nodes.ask(other, DescribeClusterRequest(), DescribeClusterResponse).brokers
        assert sorted(broker.broker_id for broker in brokers) == sorted(set(nodes.nodes) - {leader})


def fail_disk(nodes: EmbeddedNodes, node_id: int, path: str) -> None:
    """Report an I/O error in a log directory, as any code that meets it does."""
    broker = nodes.nodes[node_id].running.broker
    assert broker is not None
    logs = broker.parts.logs
    nodes.thread.call(lambda: logs.failures.maybe_add_offline_log_dir(path, "Error while writing", OSError(5, "Input/output error")))


def test_a_failed_disk_takes_its_replicas_and_the_last_one_the_node(tmp_path: Path) -> None:
    with EmbeddedNodes(tmp_path, 2, log_dirs=("disk1", "disk2"), start=False) as nodes:
        for node_id, node in nodes.nodes.items():
            node.properties["metadata.log.dir"] = str(tmp_path / f"node-{node_id}" / "metadata")
        nodes.format()
        for node_id in nodes.nodes:
            nodes.open(node_id)
        for node_id in nodes.nodes:
            nodes.wait_ready(node_id)
        nodes.create_topic(1, "orders", partitions=4, factor=2)
        on_disk1 = [number for number in range(4) if (tmp_path / f"node-1/disk1/orders-{number}").exists()]
        assert len(on_disk1) == 2
        for number in range(4):
            assert nodes.produce(nodes.partition(1, "orders", number).leader_id, "orders", 1, partition=number) == (0, 0)
        fail_disk(nodes, 1, str(tmp_path / "node-1/disk1"))
        for number in on_disk1:
            nodes.wait_for_isr("orders", {2}, number)
            # As in Kafka, the leader waits with acks=all for a follower that may come back into the set, for replica.lag.time.max.ms.
            assert nodes.produce(2, "orders", 1, partition=number, acks=1) == (0, 1)
        assert nodes.status(1).state is BrokerState.RUNNING
        fail_disk(nodes, 1, str(tmp_path / "node-1/disk2"))
        nodes.wait_for(lambda: nodes.nodes[1].failure is not None)
        failure = nodes.nodes[1].failure
        assert failure is not None
        assert failure.startswith("Shutdown broker because all log dirs in ")
        assert nodes.status(1).error == failure


def test_a_node_whose_only_disk_fails_ends_and_harms_no_other(tmp_path: Path) -> None:
    files = FaultyFiles(OsFiles(), error=errno.EIO)
    with EmbeddedNodes(tmp_path, 3, settings=HASTY, start=False) as nodes:
        nodes.nodes[1].files = files
        nodes.format()
        for node_id in nodes.nodes:
            nodes.open(node_id)
        for node_id in nodes.nodes:
            nodes.wait_ready(node_id)
        nodes.create_topic(1, "orders", factor=3)

        def fail_next() -> None:
            files.at = len(files.operations) + 1

        # In an idle cluster the next write is a record of the metadata log, which the quorum writes all the time.
        nodes.thread.call(fail_next)
        nodes.wait_for(lambda: nodes.nodes[1].failure is not None)
        assert nodes.status(1).state is BrokerState.NOT_RUNNING
        nodes.nodes[1].node = None
        nodes.wait_for_isr("orders", {2, 3})
        assert nodes.produce(nodes.partition(2, "orders").leader_id, "orders", 1) == (0, 0)


def test_a_node_that_does_not_start_says_in_which_step_and_leaves_nothing_open(tmp_path: Path) -> None:
    with EmbeddedNodes(tmp_path, start=False) as nodes:
        with pytest.raises(KopsError, match=r"Node 1 does not start, it could not check the log directories: No readable meta\.properties"):
            nodes.open(1)
        nodes.format()
        before = open_fds()
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", nodes.ports[1]))
            taken.listen()
            with pytest.raises(KopsError, match="could not lock the log directories and listen: listener PLAINTEXT can't listen on "):
                nodes.open(1)
        disk = str(tmp_path / "node-1/disk1")
        lock = OsFiles().lock(disk)
        with pytest.raises(KopsError, match=r"could not lock the log directories and listen: .*lock"):
            nodes.open(1)
        lock.release()
        quorum_state = tmp_path / "node-1/disk1/__cluster_metadata-0/quorum-state"
        quorum_state.parent.mkdir()
        quorum_state.write_text("")
        with pytest.raises(KopsError, match=r"could not start the controller: .*quorum-state"):
            nodes.open(1)
        assert open_fds() == before
        os.unlink(quorum_state)
        nodes.open(1)
        nodes.wait_ready(1)


def test_a_stop_while_logs_are_loaded_leaves_the_checkpoints_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loading, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    with EmbeddedNodes(tmp_path) as nodes:
        nodes.create_topic(1, "orders", partitions=2)
        for number in range(2):
            nodes.produce(1, "orders", 3, partition=number)
        nodes.stop(1)
        checkpoint = tmp_path / "node-1/disk1/replication-offset-checkpoint"
        before = checkpoint.read_bytes()
        assert before.count(b" 3\n") == 2
        update = UnifiedLog.update_high_watermark

        def held(log: UnifiedLog, offset: int) -> int:
            if log.topic == "orders":
                loading.set()
                assert go_on.wait(PATIENCE_S)
            return update(log, offset)

        monkeypatch.setattr(UnifiedLog, "update_high_watermark", held)
        try:
            nodes.open(1)
            assert loading.wait(PATIENCE_S)
            nodes.thread.call(lambda: nodes.nodes[1].running.shut_down(ended.set))
            nodes.wait_for(lambda: nodes.nodes[1].running.status().state is BrokerState.SHUTTING_DOWN)
            nodes.thread.call(lambda: None)
            nodes.thread.call(lambda: None)
            assert checkpoint.read_bytes() == before
        finally:
            go_on.set()
        assert ended.wait(PATIENCE_S)
        nodes.nodes[1].node = None
        assert checkpoint.read_bytes() == before


def test_a_broker_without_a_quorum_ends_when_its_time_to_register_is_over(tmp_path: Path) -> None:
    with EmbeddedNodes(tmp_path, 3, settings={"initial.broker.registration.timeout.ms": 1000}, start=False) as nodes:
        nodes.format()
        nodes.open(2)
        with pytest.raises(KopsError, match="unable to register with the controller quorum"):
            nodes.wait_ready(2)
        assert nodes.status(2).state is BrokerState.NOT_RUNNING


def test_a_start_may_be_given_a_limit(tmp_path: Path) -> None:
    with EmbeddedNodes(tmp_path, 3, settings={"server.max.startup.time.ms": 200}, start=False) as nodes:
        nodes.format()
        nodes.open(2)
        with pytest.raises(KopsError, match=r"server\.max\.startup\.time\.ms while waiting for the controller"):
            nodes.wait_ready(2)
