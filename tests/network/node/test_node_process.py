"""Nodes as processes: signals, exit codes, status files and log lines."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.support.nodes.kops_nodes import TIMEOUT_S, KopsNodes


def wait_for_state(nodes: KopsNodes, node_id: int, *states: str) -> None:
    """Wait until a node reports one of these states."""
    deadline = time.monotonic() + TIMEOUT_S
    while nodes.status(node_id).get("state") not in states:
        assert time.monotonic() < deadline, nodes.status(node_id)
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    with KopsNodes(tmp_path, 1) as nodes:
        status = nodes.status(1)
        process = nodes.processes[1]
        assert status["pid"] == process.pid
        assert status["listeners"]["PLAINTEXT"] == ["127.0.0.1", nodes.ports[1]]
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == 0
        assert nodes.status(1)["state"] == "NOT_RUNNING"
        assert nodes.status(1)["error"] is None
        assert (nodes.log_dir(1) / ".kafka_cleanshutdown").exists()
        assert f"Terminating process due to signal {number.name}" in nodes.output(1)


def test_it_tells_what_it_counts(tmp_path: Path) -> None:
    with KopsNodes(tmp_path, 1) as nodes:
        nodes.processes[1].send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + TIMEOUT_S
        while (found := re.search(r"INFO Metrics: (\{.*\}) \(kops", nodes.output(1))) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        told = json.loads(found[1])
        assert told["kafka.server:type=KafkaServer,name=BrokerState"] == 3
        assert told["kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec"] == 0
        assert told["kafka.controller:type=KafkaController,name=ActiveControllerCount"] == 1


def test_a_node_that_waits_for_its_quorum_can_be_stopped(tmp_path: Path) -> None:
    nodes = KopsNodes(tmp_path, 3)
    nodes.start(2)
    try:
        wait_for_state(nodes, 2, "STARTING")
        assert nodes.stop(2) == 0
        # Nothing was loaded, so there is no marker of a clean stop.
        assert not (nodes.log_dir(2) / ".kafka_cleanshutdown").exists()
    finally:
        nodes.__exit__()


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    nodes = KopsNodes(tmp_path, 3)
    nodes.start(1)
    try:
        wait_for_state(nodes, 1, "STARTING")
        process = nodes.processes[1]
        # The first signal starts a shutdown that lasts, because the quorum is gone.
        process.send_signal(signal.SIGTERM)
        wait_for_state(nodes, 1, "SHUTTING_DOWN", "NOT_RUNNING")
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) in (0, 128 + signal.SIGTERM)
    finally:
        nodes.__exit__()


def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    with KopsNodes(tmp_path, 1) as nodes:
        second = KopsNodes(tmp_path, 1)
        second.work = tmp_path / "second"
        second.work.mkdir()
        os.symlink(nodes.log_dir(1), second.log_dir(1))
        second.start(1)
        assert second.processes.pop(1).wait(TIMEOUT_S) == 1
        told = second.status(1)
        assert told["state"] == "NOT_RUNNING"
        assert told["error"].startswith("Node 1 does not start, it could not lock the log directories and listen: ")
        assert f"process {nodes.processes[1].pid}" in told["error"]
        assert told["error"] in second.output(1)
