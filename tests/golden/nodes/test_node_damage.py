"""Whole nodes on damaged directories of real Kafka: each starts and serves the same as Kafka, gives up a directory, or reports why it does
not start.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.errors import KopsError
from tests.support import corpus
from tests.support.nodes.embedded_nodes import EmbeddedNodes
from tests.support.nodes.networking import Client, LoopFrom
from tests.support.nodes.node_view import NodeView
from tests.support.ports import free_ports

# If a broker's last life has not ended in the metadata, it waits for the end of its session. If it can't be registered, it waits only for
# the timeout.
HASTE = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 200, "initial.broker.registration.timeout.ms": 5000}

# The error with which Kafka's consumer ended (a batch with a wrong checksum; "Failed to get offsets by times"), and what a broker answers
# then.
ANSWERS = {
    "org.apache.kafka.common.KafkaException": "damaged-batch",
    "org.apache.kafka.common.errors.TimeoutException": "NOT_LEADER_OR_FOLLOWER",
}

# Kafka reads the high watermarks when it meets the directory's first replica, which is already in the directory then. In kops, a directory
# whose file has a malformed line goes offline before it has replicas, as both do for every other checkpoint. No client notices, because
# there is no leader.
ANSWERED_OTHERWISE = {("broker-damage-4.3.0-high-watermark-malformed-two-dirs", "orders-1"): "NOT_LEADER_OR_FOLLOWER"}

# The replicas' directory has another id than in the metadata. The broker reports that to the controller while it asks to be unfenced. If
# the unfencing comes first, as it did with Kafka, no replica may lead, and nothing elects one later. If the report comes first, all is as
# before.
NEW_IDS = ("meta-directory-id-changed", "meta-directory-id-missing", "meta-directory-id-missing-two-dirs")
EITHER_COMES_FIRST = {f"broker-damage-4.3.0-{name}" for name in NEW_IDS}


def _modes() -> Iterator[tuple[str, str]]:
    for case_id in corpus.cases("broker-damage"):
        for mode in corpus.load(case_id).json["modes"]:
            yield case_id, mode


def _nodes(case: corpus.Case, mode: str, root: Path) -> EmbeddedNodes:
    """Return the case's node on a copy of its directories, not started."""
    before = case.copy(root / "before", "before")
    log_dirs = [before / name for name in case.json["logDirs"]]
    for empty in case.json["before"].get("emptyDirs") or ():
        (before / empty).mkdir(parents=True, exist_ok=True)
    for log_dir in log_dirs:
        if mode == "left":
            (log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    # What the log cleaner may drop depends on the time.
    nodes = EmbeddedNodes(root, 0, start=False, loop=LoopFrom(case.json["clockMs"]))
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
@pytest.mark.once
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
        _compare(nodes, node_id, case, mode)


def _compare(nodes: EmbeddedNodes, node_id: int, case: corpus.Case, mode: str) -> None:
    """Compare everything that real clients saw of Kafka's broker, and the records that they got."""
    seen = case.json["modes"][mode]["seen"]
    assert seen["groupsError"] is None
    possible = [seen, *([case.json["cleanSeen"]] if case.id in EITHER_COMES_FIRST else [])]
    with Client(nodes.thread.call(lambda: nodes.nodes[node_id].running.bound_port("PLAINTEXT"))) as client:
        view = NodeView(client)
        seen = _settled(view, possible)
        assert view.topics() == seen["topics"]
        assert view.cluster_id() == seen["clusterId"]
        assert view.log_dirs() == seen["logDirs"]
        assert view.groups() == seen["groups"]
        for partition in seen["partitions"]:
            mine, records = view.partition(partition["topic"], partition["partition"])
            assert mine == _as_answered(case, mode, partition)
            if records:
                assert [corpus.as_truth(record) for record in records] == case.lines(_truth(case, mode, partition))


def _settled(view: NodeView, possible: list[dict[str, Any]]) -> dict[str, Any]:
    """Return which of these results it is, when the last leader is elected."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        topics = view.topics()
        for seen in possible:
            if topics == seen["topics"]:
                return seen
        time.sleep(0.02)
    return possible[0]


def _as_answered(case: corpus.Case, mode: str, partition: dict[str, Any]) -> dict[str, Any]:
    """Return what Kafka's broker answered when the corpus's client ended with this error."""
    error = partition["error"]
    if error == "no leader":
        return partition | {"records": 0, "error": _without_leader(case, mode, f"{partition['topic']}-{partition['partition']}")}
    return partition | {"error": error and ANSWERS[error["class"]]}


def _without_leader(case: corpus.Case, mode: str, name: str) -> str:
    """Return the error of a partition without a leader. The corpus's client did not ask for it, but the broker's log shows the state of its
    replica.
    """
    if (case.id, name) in ANSWERED_OTHERWISE:
        return ANSWERED_OTHERWISE[case.id, name]
    words = f"Unable to start fetching {name} "
    is_offline = any(words in line and "due to a storage error" in line for line in case.json["modes"][mode]["log"])
    return "KAFKA_STORAGE_ERROR" if is_offline else "NOT_LEADER_OR_FOLLOWER"


def _truth(case: corpus.Case, mode: str, partition: dict[str, Any]) -> str:
    after, clean = (
        f"truth/records/{when}.{partition['topic']}-{partition['partition']}.read_uncommitted.jsonl" for when in (f"after-{mode}", "clean")
    )
    return after if after in case.files("truth/records") else clean
