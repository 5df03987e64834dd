"""`kops log replay` on a cluster of kops. `tests/differential/clients/commands/test_replay.py` does the same on Apache Kafka."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.client.producer.partitioners import partition_for_key
from kops.cluster.embedded import Cluster
from tests.cli.conftest import PROJECT, Ran
from tests.support.logs.replaying import replay_with_stops, rows_of
from tests.support.logs.salvaged import SalvagedLog, salvaged_log

Kops = Callable[..., Ran]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics=["same:2", "open:1", "keys:3", "stops:2", "small:1", "killed:1", "slow:1", "exported:2"]) as made:
        yield made


@pytest.fixture
def on(kops: Kops, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kops:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> Ran:
        ran = kops("log", "replay", *arguments, "-b", cluster.bootstrap_servers)
        assert ran.code == code, ran.text + ran.err
        return ran

    return run


def test_records_arrive_as_they_were(on: Kops, kops: Kops, cluster: Cluster, tmp_path: Path) -> None:
    logs = [salvaged_log(), salvaged_log(batches=9, size=400)]
    for number, log in enumerate(logs):
        log.write(tmp_path / "in" / f"orders-{number}")
    (tmp_path / "in" / "__consumer_offsets-0").mkdir()
    line = [str(tmp_path / "in"), "--map", "orders=same", "-z", "zstd"]
    ran = on(*line, "-n", "--format", "json")
    planned = [(row["log"], row["topic"], row["records"], row["undecided"]) for row in json.loads(ran.text)["logs"]]
    assert planned == [(f"orders-{number}", "same", len(log.committed), 2) for number, log in enumerate(logs)]
    assert "nothing was sent" in ran.err
    assert rows_of(kops, "same", cluster.bootstrap_servers) == {}
    ran = on(*line, "--format", "json")
    assert [row["records"] for row in json.loads(ran.text)["logs"]] == [len(log.committed) for log in logs]
    assert "2 records of transactions without an end were left out" in ran.err
    assert rows_of(kops, "same", cluster.bootstrap_servers) == {0: logs[0].committed, 1: logs[1].committed}
    assert "kops-replay.json: exists already" in on(*line, code=16).err
    on(*line, "--resume")
    assert rows_of(kops, "same", cluster.bootstrap_servers) == {0: logs[0].committed, 1: logs[1].committed}
    assert "other map" in on(str(tmp_path / "in"), "--resume", code=16).err
    assert not (tmp_path / "kops-replay.rejected.jsonl").exists()


def test_uncommitted_records_on_demand(on: Kops, kops: Kops, cluster: Cluster, tmp_path: Path) -> None:
    log = salvaged_log()
    log.write(tmp_path / "open-0")
    on(str(tmp_path / "open-0"), "--isolation", "read_uncommitted")
    assert rows_of(kops, "open", cluster.bootstrap_servers) == {0: log.every}


def test_an_export_is_sent_like_a_directory(on: Kops, kops: Kops, cluster: Cluster, tmp_path: Path) -> None:
    logs = [salvaged_log(), salvaged_log(batches=2)]
    for number, log in enumerate(logs):
        log.write(tmp_path / "in" / f"orders-{number}")
    lines = kops("log", "export", str(tmp_path / "in")).text
    export = tmp_path / "orders.jsonl"
    export.write_text(lines)
    on(str(export), "--map", "orders=exported")
    assert rows_of(kops, "exported", cluster.bootstrap_servers) == {0: logs[0].committed, 1: logs[1].committed}
    on(str(export), "--map", "orders=exported", "--resume")
    assert rows_of(kops, "exported", cluster.bootstrap_servers) == {0: logs[0].committed, 1: logs[1].committed}
    fresh = ["--state", "other", "--map", "orders=exported"]
    assert "orders-0 is in" in on(str(export), str(tmp_path / "in"), *fresh, code=16).err
    assert "-: an export is read more than once, so it must be a file" in on("-", *fresh, code=16).err
    assert f"{tmp_path / 'no.jsonl'}: there is no such file" in on(str(tmp_path / "no.jsonl"), *fresh, code=8).err
    export.write_text(lines.replace('"key"', "key", 1))
    assert f"{export}: line 4 is not JSON" in on(str(export), *fresh, "-n", code=8).err
    for text, words in (
        ("", "is empty"),
        ('{"offset":1}\n', "line 1 begins no partition"),
        (lines.replace("orders-0", "orders-x"), "line 1: 'orders-x'"),
    ):
        export.write_text(text)
        assert words in on(str(export), *fresh, "-n", code=8).err


def test_partitions_by_key(on: Kops, kops: Kops, cluster: Cluster, tmp_path: Path) -> None:
    log = salvaged_log(batches=20)
    log.write(tmp_path / "keys-4")
    on(str(tmp_path), "--partition", "key")
    found = rows_of(kops, "keys", cluster.bootstrap_servers)
    assert sorted(row for rows in found.values() for row in rows) == sorted(log.committed)
    for partition, rows in found.items():
        keys = {row[1] for row in rows}
        assert {1 if key is None else partition_for_key(b64decode(key), 3) for key in keys} == {partition}
        assert rows == [row for row in log.committed if row in rows]


@pytest.mark.parametrize("options", [(), pytest.param(("--partition", "key"), marks=pytest.mark.slow)])
def test_lost_answers_write_nothing_twice(
    options: tuple[str, ...], kops: Kops, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kops.client.replay.rounds.BATCH_BYTES", 300)
    topic = "again" if options else "stops"
    if options:
        cluster.create_topic(topic, partitions=2)
    logs = [salvaged_log(), salvaged_log(batches=3)]
    for number, log in enumerate(logs):
        log.write(tmp_path / "in" / f"{topic}-{number}")
    runs = replay_with_stops(kops, monkeypatch, tmp_path / "in", tmp_path, cluster.bootstrap_servers, *options)
    assert runs > 3
    found = rows_of(kops, topic, cluster.bootstrap_servers)
    if options:
        assert sorted(row for rows in found.values() for row in rows) == sorted(logs[0].committed + logs[1].committed)
    else:
        assert found == {0: logs[0].committed, 1: logs[1].committed}


def test_rejected_records_are_kept_with_the_reason(
    on: Kops, kops: Kops, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kops("topic", "alter", "small", "--config", "max.message.bytes=600", "-b", cluster.bootstrap_servers)
    log = SalvagedLog()
    for size in (20, 700, 20, 30):
        log.batch(3, size=size)
    log.write(tmp_path / "in" / "small-0")
    log.write(tmp_path / "in" / "small-9")
    log.write(tmp_path / "in" / "nothing-0")
    ran = on(str(tmp_path / "in"), "-n", code=4)
    assert "small has 1 partition and no partition 9" in ran.err
    assert "nothing is no topic of the cluster" in ran.err
    runs = replay_with_stops(kops, monkeypatch, tmp_path / "in", tmp_path, cluster.bootstrap_servers)
    assert runs > 2
    lines = [json.loads(line) for line in (tmp_path / "rejected").read_text().splitlines()]
    reasons: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in lines:
        reasons.setdefault((row["topic"], row["partition"]), []).append(row)
    large = reasons["small", 0]
    assert [row["offset"] for row in large] == [6, 7, 8]
    assert all(row["reason"].startswith("MESSAGE_TOO_LARGE") for row in large)
    assert [len(reasons[key]) for key in (("small", 9), ("nothing", 0))] == [12, 12]
    assert "has 1 partition and no partition 9" in reasons["small", 9][0]["reason"]
    expected = [row for row in log.committed if len(row[2] or "") < 700]
    assert rows_of(kops, "small", cluster.bootstrap_servers) == {0: expected}
    ran = on(str(tmp_path / "in"), "--resume", "--state", "state", "--rejected", "rejected", code=4)
    assert "27 records rejected, and written to rejected" in ran.err


@pytest.mark.slow
def test_a_killed_run_goes_on(on: Kops, kops: Kops, cluster: Cluster, tmp_path: Path) -> None:
    """A replay goes on after SIGKILL and after Ctrl-C. --throttle makes it slow enough to interrupt."""
    log = salvaged_log(batches=40, size=90)
    log.write(tmp_path / "killed-0")
    code = "import sys, kops.client.replay.rounds as r; r.BATCH_BYTES = 500; from kops.cli.main import main; sys.exit(main(sys.argv[1:]))"
    line = ["log", "replay", "killed-0", "-b", cluster.bootstrap_servers, "--throttle", "1000"]
    for number in (signal.SIGKILL, signal.SIGINT):
        again = ["--resume"] if number == signal.SIGINT else []
        process = subprocess.Popen(
            [sys.executable, "-c", code, *line, *again],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        path = tmp_path / "kops-replay.json"
        before = path.read_bytes() if path.exists() else b""
        while process.poll() is None and (not path.exists() or path.read_bytes() == before):
            time.sleep(0.01)
        process.send_signal(number)
        _, error = process.communicate(timeout=60)
        if number == signal.SIGINT:
            assert b"To resume: kops log replay --resume killed-0" in error
            assert process.returncode & 32
    on("killed-0", "--resume")
    assert rows_of(kops, "killed", cluster.bootstrap_servers) == {0: log.committed}


def test_damage_is_skipped_and_told(on: Kops, kops: Kops, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("hurt")
    log = SalvagedLog()
    for _ in range(3):
        log.batch(2)
    first = len(log.data) // 3
    log.data = log.data[: first + 70] + b"\xff" + log.data[first + 71 :]
    log.write(tmp_path / "hurt-0")
    ran = on("hurt-0", code=4)
    assert "skipped: " in ran.err
    assert rows_of(kops, "hurt", cluster.bootstrap_servers) == {0: [*log.committed[:2], *log.committed[4:]]}


def test_wrong_usage(kops: Kops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = SalvagedLog()
    log.batch(1)
    for folder in ("a/orders-0", "b/orders-0", "a/__consumer_offsets-0"):
        log.write(tmp_path / folder)
    (tmp_path / "state").write_text("{}")
    for line, code, words in (
        (["a", "b"], 16, "join them with kops log recover"),
        (["a", "--map", "orders"], 16, "OLD=NEW"),
        (["a", "--map", "others=orders"], 8, "--map others: no partition of this topic"),
        (["a", "--topic", "__consumer_offsets"], 16, "an internal topic"),
        (["a", "--topic", "else"], 8, "--topic else: no partition"),
        (["a", "--partition", "hash"], 16, "not one of same, key"),
        (["a", "--isolation", "any"], 16, "not one of"),
        (["a", "-n", "--resume"], 16, "only one of"),
        (["a", "--resume"], 16, "nothing to resume"),
        (["a", "--resume", "--state", "state"], 16, "not the state of a replay"),
        (["a", "--state", "state"], 16, "exists already"),
        (["a/orders-0/00000000000000000003.log"], 16, "is a file"),
        (["nothing"], 8, "no such file"),
        (["a", "-z", "brotli"], 16, "brotli"),
        (["a", "--throttle", "0"], 16, "at least 1"),
    ):
        ran = kops("log", "replay", *line, "-b", "localhost:1")
        assert (ran.code, words in ran.err) == (code, True), (line, ran.code, ran.err)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "state"]
    ran = kops("log", "replay", "a", "-b", "127.0.0.1:1", "--command-property", "default.api.timeout.ms=100")
    assert (ran.code, "127.0.0.1:1" in ran.err, "resume" in ran.err) == (8, True, False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "state"]
