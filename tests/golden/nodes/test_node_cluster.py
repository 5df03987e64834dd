"""Clusters that Apache Kafka has left: kops's nodes, a controller and three brokers, start on the directories and serve all data."""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.errors import KopsError
from kops.files import OsFiles, OverlayFiles
from kops.protocol.messages import MetadataRequest, MetadataResponse
from kops.storage.manager.log_manager import LogManager
from kops.storage.scheduler import Scheduler
from kops.storage.start.log_dirs import LogDirStart
from tests.support import corpus
from tests.support.nodes.embedded_nodes import EmbeddedNodes
from tests.support.ports import free_ports

BROKERS, CONTROLLER = (1, 2, 3), 100


def _ends(log_dir: Path) -> dict[tuple[str, int], int]:
    """Return the end of each log in a directory, without changing the directory."""
    files = OverlayFiles(OsFiles(read_only=True))
    manager = LogManager(files, [LogDirStart(str(log_dir))], now_ms=lambda: 0, scheduler=Scheduler(lambda: 0), new_id=lambda: "0" * 32)
    manager.startup()
    ends = {(key.topic, key.partition): log.log_end_offset for key, log in manager.current_logs.items()}
    manager.shutdown()
    return ends


def _add_nodes(nodes: EmbeddedNodes, case: corpus.Case, root: Path) -> None:
    ports = dict(zip((*BROKERS, CONTROLLER), free_ports(4), strict=True))
    voters = f"{CONTROLLER}@127.0.0.1:{ports[CONTROLLER]}"
    for node_id, port in ports.items():
        role, listener = ("controller", "CONTROLLER") if node_id == CONTROLLER else ("broker", "PLAINTEXT")
        nodes.add(
            node_id,
            {
                "process.roles": role,
                "listeners": f"{listener}://127.0.0.1:{port}",
                "controller.quorum.voters": voters,
                "log.dirs": case.copy(root / f"n{node_id}", f"nodes/n{node_id}"),
            },
        )


@pytest.mark.once
def test_what_kafka_left_is_served_and_goes_on(tmp_path: Path) -> None:
    case = corpus.load("cluster-4.3.0")
    expected: dict[tuple[str, int], int] = {}
    for broker in BROKERS:
        for key, end in _ends(case.root / f"nodes/n{broker}").items():
            expected[key] = max(end, expected.get(key, 0))
    with EmbeddedNodes(tmp_path, 0, start=False) as nodes:
        _add_nodes(nodes, case, tmp_path)
        for node_id in (CONTROLLER, *BROKERS):
            nodes.open(node_id)
        for node_id in BROKERS:
            nodes.wait_ready(node_id)
        topics = nodes.ask(1, MetadataRequest(None), MetadataResponse).topics
        served = {(topic.name or "", found.partition_index): found for topic in topics for found in topic.partitions}
        assert served.keys() == expected.keys()
        for (topic, number), end in expected.items():
            nodes.wait_for_replicas_in_sync(1, topic, number)
            assert nodes.offset(nodes.partition(1, topic, number).leader_id, topic, number) == end
        leader = nodes.partition(1, "orders-epochs").leader_id
        assert nodes.produce(leader, "orders-epochs", 5) == (0, expected["orders-epochs", 0])
        nodes.create_topic(2, "made-by-kops", factor=3)
        assert nodes.produce(nodes.partition(3, "made-by-kops").leader_id, "made-by-kops", 5) == (0, 0)
        for node_id in (*BROKERS, CONTROLLER):
            nodes.stop(node_id)
    for broker in BROKERS:
        ends = _ends(tmp_path / f"n{broker}")
        assert ends["made-by-kops", 0] == 5
        assert ends["orders-epochs", 0] == expected["orders-epochs", 0] + 5


def test_a_setting_that_kafka_allows_no_longer_ends_a_broker_with_its_name(tmp_path: Path) -> None:
    case = corpus.load("cluster-3.9.1")
    with EmbeddedNodes(tmp_path, 0, start=False) as nodes:
        _add_nodes(nodes, case, tmp_path)
        nodes.open(CONTROLLER)
        nodes.open(1)
        with pytest.raises(KopsError, match=r"topic orders-epochs: segment\.bytes=6000: not allowed; allowed: 1048576 or more"):
            nodes.wait_ready(1)
