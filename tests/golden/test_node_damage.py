"""Whole nodes on directories of real Kafka, damaged: each starts and serves what Kafka served, lets go of a directory, or says why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.errors import KopsError
from kops.protocol.messages import MetadataRequest, MetadataResponse
from kops.storage.kafka_uuid import uuid_text
from tests.support import corpus
from tests.support.embedded_nodes import EARLIEST, EmbeddedNodes
from tests.support.real_broker import free_ports

# A broker whose last life has not ended in the metadata waits for its session's end; one that can't be registered waits for nothing else.
HASTE = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 200, "initial.broker.registration.timeout.ms": 5000}


def _modes() -> Iterator[tuple[str, str]]:
    for case_id in corpus.cases("broker-damage"):
        for mode in corpus.load(case_id).json["modes"]:
            yield case_id, mode


def _nodes(case: corpus.Case, mode: str, root: Path) -> EmbeddedNodes:
    """The case's node on a copy of its directories, not started."""
    before = case.copy(root / "before", "before")
    log_dirs = [before / name for name in case.json["logDirs"]]
    for empty in case.json["before"].get("emptyDirs") or ():
        (before / empty).mkdir(parents=True, exist_ok=True)
    for log_dir in log_dirs:
        if mode == "left":
            (log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    nodes = EmbeddedNodes(root, 0, start=False)
    port, controller_port = free_ports(2)
    node_id, address = case.json["nodeId"], f"127.0.0.1:{controller_port}"
    is_dynamic = case.json["base"] == "dynamic"
    settings = {
        **case.json["config"],
        **HASTE,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://{address}",
        **({"controller.quorum.bootstrap.servers": address} if is_dynamic else {"controller.quorum.voters": f"{node_id}@{address}"}),
        "log.dirs": ",".join(map(str, log_dirs)),
    }
    nodes.add(node_id, settings)
    return nodes


@pytest.mark.slow
@pytest.mark.parametrize(("case_id", "mode"), list(_modes()))
def test_a_node_on_damaged_directories(case_id: str, mode: str, tmp_path: Path) -> None:
    case = corpus.load(case_id)
    expected, node_id = case.json["modes"][mode], case.json["nodeId"]
    with _nodes(case, mode, tmp_path) as nodes:
        try:
            nodes.open(node_id)
            nodes.wait_ready(node_id)
        except KopsError as error:
            assert expected["outcome"] == "does-not-start", error
            return
        assert expected["outcome"] != "does-not-start"
        broker = nodes.nodes[node_id].running.broker
        assert broker is not None
        assert bool(broker.parts.logs.dirs.offline) == (expected["outcome"] == "started-log-dir-offline")
        if expected["seen"]:
            _compare(nodes, node_id, expected["seen"])


def _compare(nodes: EmbeddedNodes, node_id: int, seen: dict[str, Any]) -> None:
    told = nodes.ask(node_id, MetadataRequest(None), MetadataResponse)
    mine = {topic.name: uuid_text(topic.topic_id) for topic in told.topics}
    assert mine == {topic["name"]: topic["topicId"] for topic in seen["topics"]}
    for partition in seen["partitions"]:
        if partition.get("error") is None:
            found = [nodes.offset(node_id, partition["topic"], partition["partition"], which=which) for which in (EARLIEST, -1)]
            assert found == [partition["beginningOffset"], partition["endOffset"]]
