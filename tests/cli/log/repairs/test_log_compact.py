"""`kops log compact` on the command line: output, files, exit codes, rejections, an interruption."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint
from tests.cli.conftest import Ran
from tests.support import corpus
from tests.support.logs.twins import cleaning

Kops = Callable[..., Ran]
CASE = "v2-4.3.0-compacted-idempotent"
SETTINGS = ("--config", "internal.segment.bytes=9000", "--config", "index.interval.bytes=200")
NOW = ("--now", str(cleaning.NOW_MS))


def document(ran: Ran) -> dict[str, Any]:
    found = json.loads(ran.out)
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a log directory with two partitions. One of them was cleaned before."""
    root = tmp_path_factory.mktemp("compact") / "source"
    for topic in ("orders", "users"):
        cleaning.write_log(root / f"{topic}-0", random.Random(topic), cleaning.Shape(transactions=0, gaps=0, empty=0))
    root.joinpath("cleaner-offset-checkpoint").write_text("0\n1\nusers 0 200\n")
    root.joinpath(".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    return root


def test_a_directory_is_compacted_into_another(kops: Kops, source: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    out = tmp_path / "deep" / "out"
    ran = kops("log", "compact", str(source), "--out", str(out), *SETTINGS, *NOW, "--format", "json")
    assert ran.code == 0, ran
    found = document(ran)
    assert found["schema"] == "kops.compact/v1"
    orders, users = found["partitions"]
    assert (orders["partition"], orders["first_dirty_offset"], users["first_dirty_offset"]) == ("orders-0", 0, 200)
    assert orders["records_kept"] < orders["records_read"]
    assert orders["bytes_after"] < orders["bytes_before"]
    assert {path: path.read_bytes() for path in source.rglob("*") if path.is_file()} == before
    checkpoint = read_offset_checkpoint(out.joinpath("cleaner-offset-checkpoint").read_bytes())
    assert checkpoint == {TopicPartition("orders", 0): orders["clean_up_to"], TopicPartition("users", 0): users["clean_up_to"]}
    assert not [path.name for path in out.rglob("*") if path.name.endswith((".deleted", ".cleaned", ".swap", ".kops-partial"))]
    for name in ("orders-0", "users-0"):
        assert kops("log", "verify", "--level", "full", str(out / name)).code == 0


def test_rolling_cleans_the_active_segment_too(kops: Kops, source: Path, tmp_path: Path) -> None:
    path = str(source / "orders-0")
    plain = document(kops("log", "compact", path, "--out", str(tmp_path / "plain"), *SETTINGS, *NOW, "--format", "json"))
    arguments = ("--roll", "--dirty-from", "0", "--format", "json")
    rolled = document(kops("log", "compact", path, "--out", str(tmp_path / "rolled"), *SETTINGS, *NOW, *arguments))
    assert rolled["partitions"][0]["clean_up_to"] == rolled["partitions"][0]["log_end_offset"]
    assert rolled["partitions"][0]["clean_up_to"] > plain["partitions"][0]["clean_up_to"]
    records = [
        json.loads(line)
        for line in kops("log", "dump", "--print-data-log", "--format", "jsonl", str(tmp_path / "rolled" / "orders-0")).out.splitlines()
    ]
    keys = [record["key"] for record in records if "key" in record]
    assert len(keys) == len({json.dumps(key) for key in keys})


def test_damage_leaves_the_partition_out(kops: Kops, source: Path, tmp_path: Path) -> None:
    import shutil

    copied = tmp_path / "copied"
    shutil.copytree(source, copied)
    log = sorted(copied.joinpath("orders-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    ran = kops("log", "compact", str(copied), "--out", str(tmp_path / "out"), *SETTINGS, "--format", "json")
    assert ran.code == 4
    orders, users = document(ran)["partitions"]
    assert "kops log recover" in orders["error"]
    assert users["error"] is None
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == ["users-0"]


def test_a_brokers_directory(kops: Kops, tmp_path: Path) -> None:
    path = str(corpus.load(CASE).root / "data")
    ran = kops("log", "compact", path, "--out", str(tmp_path / "out"), "--dirty-from", "0", "--format", "wide")
    assert ran.code == 0, ran
    assert "user_events-compacted-idempotent-0" in ran.text


def test_wrong_usage(kops: Kops, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    out.joinpath("something").write_text("")
    for arguments in (
        (str(source),),
        (str(source), "--out", str(source / "inside")),
        (str(source), "--out", str(out)),
        (str(source), "--out", str(tmp_path / "new"), "--config", "segment.bytes=1"),
        (str(source), "--out", str(tmp_path / "new"), "--dirty-from", "-1"),
        (str(source), str(source / "orders-0"), "--out", str(out / "something")),
        (str(tmp_path), "--out", "/dev/null/x"),
    ):
        assert kops("log", "compact", *arguments).code in (8, 16), arguments
    assert kops("log", "compact", str(source), "--out", str(out)).code == 16
    assert kops("log", "compact", str(tmp_path / "missing"), "--out", str(tmp_path / "new")).code == 8
    assert kops("log", "compact", str(source), "--out", str(out), *SETTINGS, "--force").code == 0


def test_an_interruption_leaves_whole_partitions(source: Path, tmp_path: Path) -> None:
    root, out = tmp_path / "many", tmp_path / "out"
    for number in range(150):
        folder = root / f"orders-{number}"
        folder.mkdir(parents=True)
        for path in source.joinpath("orders-0").iterdir():
            folder.joinpath(path.name).hardlink_to(path)
    command = [sys.executable, "-m", "kops", "log", "compact", str(root), "--out", str(out), *SETTINGS, "--format", "json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (out / "orders-1").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    printed, words = process.communicate(timeout=60)
    assert process.returncode == 32, words
    found = json.loads(printed)
    assert found["interrupted"]
    done = [entry["partition"] for entry in found["partitions"]]
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == sorted(done)
    assert {
        f"{key.topic}-{key.partition}" for key in read_offset_checkpoint(out.joinpath("cleaner-offset-checkpoint").read_bytes())
    } == set(done)
