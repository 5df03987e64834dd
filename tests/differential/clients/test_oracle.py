"""The oracle itself: it reproduces Kafka's results in the corpus, and real brokers start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import corpus
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import BrokerEnded, RealBroker

MODES = {
    "deep": ["--deep-iteration", "--print-data-log"],
    "shallow": [],
    "index": [],
    "plain": [],
    "sanity": ["--index-sanity-check"],
    "verify": ["--verify-index-only"],
}
pytestmark = pytest.mark.smoke


@pytest.mark.parametrize("case_id", ["v0-0.9.0.1-codec-gzip", "v1-0.10.2.2-codec-lz4", "v2-4.3.0-transactions"])
def test_dump_repeats_the_truth(oracle: Oracle, tmp_path: Path, case_id: str) -> None:
    case = corpus.load(case_id)
    root = case.copy(tmp_path / "case")
    compared = 0
    for path in case.files("truth/dump"):
        file, mode, _ = path.removeprefix("truth/dump/").rsplit(".", 2)
        if mode in MODES:
            assert oracle.dump([*MODES[mode], "--files", str(root / file)], root=root) == case.text(path), path
            compared += 1
    assert compared


def test_load_log_repeats_fuzz_trials(oracle: Oracle, tmp_path: Path) -> None:
    case = corpus.load("fuzz-4.3.0-transactions")
    for number, trial in enumerate(case.lines("trials.jsonl")[:30]):
        folder = case.copy(tmp_path / str(number) / case.json["base"], f"base/{case.json['base']}")
        corpus.apply_damage(folder, trial["ops"])
        got = oracle.load_log(
            folder,
            log_start_offset=case.json["logStartOffset"],
            recovery_point=trial["recoveryPoint"],
            clean=trial["cleanShutdown"],
            config=case.json["config"],
        )
        assert got == {name: value for name, value in trial["result"].items() if name != "at"}, trial["ops"]


def test_a_tool_that_exits_leaves_the_jvm(oracle: Oracle) -> None:
    ran = oracle.run("org.apache.kafka.tools.DumpLogSegments", ["--deep-iteration"])
    assert ran.error is not None
    assert "Missing required argument" in ran.text
    assert oracle.dump(["--files", "/nowhere/1.unknown"]) == "Dumping /nowhere/1.unknown\nIgnoring unknown file /nowhere/1.unknown\n"


@pytest.mark.slow
def test_a_broker_on_an_empty_directory(oracle: Oracle, tmp_path: Path) -> None:
    records = [(b"k%d" % number, b"value %d" % number if number % 3 else None) for number in range(25)]
    disk = tmp_path / "disk1"
    with RealBroker(oracle, tmp_path / "run", log_dirs=[disk]) as broker:
        oracle.create_topic(broker.bootstrap, "orders", partitions=2, config={"index.interval.bytes": "256"})
        oracle.produce(broker.bootstrap, "orders", 1, records, settings={"compression.type": "lz4"})
        seen = oracle.read_records(broker.bootstrap, "orders", 1)
        assert seen.meta["error"] is None
        assert seen.meta["endOffset"] == seen.meta["reachedOffset"] == len(seen.records) == 25
        assert (seen.records[1]["offset"], seen.records[1]["key"], seen.records[3]["value"]) == (1, "azE=", None)
        assert broker.stop() == 143
    assert (disk / ".kafka_cleanshutdown").exists()
    assert (disk / "orders-1" / "00000000000000000000.log").stat().st_size > 0


@pytest.mark.slow
def test_a_broker_that_does_not_start_says_why(oracle: Oracle, tmp_path: Path) -> None:
    disk = tmp_path / "disk1"
    broker = RealBroker(oracle, tmp_path / "run", log_dirs=[disk], node_id=1)
    broker.format()
    (disk / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=abc\n")
    with pytest.raises(BrokerEnded) as caught:
        broker.start()
    assert caught.value.exit_code == 1
    assert "Stored node id 7 doesn't match previous node id 1" in str(caught.value)
