"""`kops log forecast` on the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kops.cli.running.exit_codes import CLEAN, FAILED, PROBLEMS, USAGE
from kops.files import Files, OsFiles
from kops.forensics.forecast import run as module
from kops.forensics.forecast.on_disk import OnDisk, offsets_on_disk
from tests.cli.conftest import Ran
from tests.support import corpus

Kops = Callable[..., Ran]
KEYS = [
    "dir",
    "topic",
    "partition",
    "state",
    "outcome",
    "reason",
    "log_start_offset",
    "log_end_offset",
    "recovery_point",
    "lost",
    "lost_though_intact",
    "segments_removed",
    "segments_truncated",
]


def _folder(case_id: str) -> Path:
    return corpus.load(case_id).root / "before"


def test_a_harmless_start(kops: Kops) -> None:
    ran = kops("log", "forecast", "--format", "json", str(_folder("broker-damage-4.3.0-none") / "disk1"))
    document = json.loads(ran.out)
    assert ran.code == CLEAN
    assert document["schema"] == "kops.forecast/v1"
    assert document["broker"] == {"outcome": "started", "reason": None}
    assert [list(each) for each in document["partitions"]] == [KEYS] * 2
    assert {each["outcome"] for each in document["partitions"]} == {"loaded"}
    assert all(each["lost"] == [] for each in document["partitions"])


def test_a_crash_is_another_question_than_a_clean_stop(kops: Kops) -> None:
    path = str(_folder("damage-4.3.0-flip-body-old"))
    clean = json.loads(kops("log", "forecast", "-q", "--format", "json", path).out)["partitions"][0]
    crash = json.loads(kops("log", "forecast", "-q", "--format", "json", "--assume", "crash", "--recovery-point", "0", path).out)[
        "partitions"
    ][0]
    assert (clean["state"], clean["outcome"]) == ("clean", "loaded-consumer-error")
    assert (crash["state"], crash["outcome"]) == ("full", "loaded")
    assert crash["segments_removed"] == ["00000000000000000042.log", "00000000000000000063.log", "00000000000000000084.log"]
    assert crash["segments_truncated"] == [{"segment": "00000000000000000021.log", "base_offset": 21, "from": 1945, "to": 828}]
    assert crash["lost"] == [[30, 98]]
    assert crash["lost_though_intact"] == [[33, 98]]


def test_a_table_says_what_is_lost(kops: Kops) -> None:
    ran = kops("log", "forecast", "--assume", "crash", "--recovery-point", "0", str(_folder("damage-4.3.0-flip-body-old")))
    assert ran.code == PROBLEMS
    first, *rest = ran.text.splitlines()
    assert first == "broker: started"
    assert "30-98" in rest[-1]
    assert "33-98" in rest[-1]


def test_a_metadata_log_that_is_cut_is_told_in_words(kops: Kops, tmp_path: Path) -> None:
    """Every start reads the metadata log anew. That alone is not reported."""
    target = tmp_path / "kafka"
    shutil.copytree(_folder("broker-damage-4.3.0-none-two"), target, copy_function=corpus.copy_writable)
    assert "__cluster_metadata-0" not in kops("log", "forecast", str(target / "disk1"), str(target / "disk2")).err
    log = next(target.glob("*/__cluster_metadata-0/00000000000000000000.log"))
    size = log.stat().st_size
    log.write_bytes(log.read_bytes() + bytes(5))
    ran = kops("log", "forecast", str(target / "disk1"), str(target / "disk2"))
    assert f"{log}: cut from {size + 5} to {size} bytes, so that the metadata log ends at offset " in ran.err
    assert "LoadAction" not in ran.err


def test_two_log_directories_are_one_broker(kops: Kops) -> None:
    folder = _folder("broker-damage-4.3.0-meta-directory-id-duplicate-two-dirs")
    ran = kops("log", "forecast", "--format", "json", str(folder / "disk1"), str(folder / "disk2"))
    document = json.loads(ran.out)
    assert ran.code == PROBLEMS
    assert document["broker"]["outcome"] == "does-not-start"
    assert "Duplicate directory ID" in document["broker"]["reason"]
    assert {each["outcome"] for each in document["partitions"]} == {"broker-does-not-start"}
    shown = kops("log", "forecast", str(folder / "disk1"), str(folder / "disk2")).text
    assert shown.count("Duplicate directory ID") == 1
    assert shown.count("broker-does-not-start") == len(document["partitions"]) + 2


def test_server_properties_name_the_directories(kops: Kops, tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(
        f"node.id=1\nlog.dirs={_folder('broker-damage-4.3.0-none-two')}/disk1, {_folder('broker-damage-4.3.0-none-two')}/disk2\n"
    )
    document = json.loads(kops("log", "forecast", "--format", "json", "--server-properties", str(settings)).out)
    assert [each["outcome"] for each in document["log_dirs"]] == ["started", "started"]
    settings.write_text(settings.read_text().replace("node.id=1", "node.id=7"))
    document = json.loads(kops("log", "forecast", "--format", "json", "--server-properties", str(settings)).out)
    assert "doesn't match previous node id 7" in document["broker"]["reason"]


def test_wrong_questions(kops: Kops, tmp_path: Path) -> None:
    log_dir = _folder("damage-4.3.0-none")
    partition = str(log_dir / corpus.load("damage-4.3.0-none").json["damagedDir"].split("/")[1])
    for arguments, code, word in (
        (["--assume", "maybe", str(log_dir)], USAGE, "clean, crash"),
        (["--config", "segment.bites=1", str(log_dir)], USAGE, "--config: unknown setting segment.bites; did you mean segment.bytes"),
        (["--config", "retention.ms=soon", str(log_dir)], USAGE, "--config: retention.ms=soon"),
        ([str(tmp_path / "nowhere")], FAILED, "nowhere"),
        ([str(log_dir), partition], USAGE, "not both"),
        ([], USAGE, "--server-properties"),
    ):
        ran = kops("log", "forecast", *arguments)
        assert ran.code == code, arguments
        assert word in ran.err, arguments


def test_nothing_is_written(kops: Kops, tmp_path: Path) -> None:
    target = tmp_path / "kafka"
    shutil.copytree(_folder("damage-4.3.0-two-flips"), target, copy_function=corpus.copy_writable)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in target.rglob("*") if path.is_file()}
    kops("log", "forecast", "--assume", "crash", "--recovery-point", "0", str(target))
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in target.rglob("*") if path.is_file()} == before


def test_a_file_that_cannot_be_read_takes_the_directory_offline(kops: Kops, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _folder("damage-4.3.0-none")
    refused = sorted(folder.glob("*/*.log"))[0]
    original = OsFiles.open

    def open_(self: OsFiles, path: str, *mode: str) -> object:
        if path == str(refused):
            raise PermissionError(13, "Permission denied", path)
        return original(self, path, *mode)  # type: ignore[arg-type]

    monkeypatch.setattr(OsFiles, "open", open_)
    ran = kops("log", "forecast", "--format", "json", str(folder))
    document = json.loads(ran.out)
    assert ran.code == PROBLEMS
    assert document["log_dirs"][0]["outcome"] == "log-dir-offline"
    assert document["broker"]["outcome"] == "does-not-start"
    assert "Permission denied" in document["partitions"][0]["reason"]


def test_a_symlink_that_leads_nowhere_is_no_file(kops: Kops, tmp_path: Path) -> None:
    """Kafka checks whether it is a file before it checks whether it can be read."""
    case = corpus.load("broker-damage-4.3.0-none")
    log_dir = case.copy(tmp_path / "disk", "before/disk1")
    before = kops("log", "forecast", "--format", "json", str(log_dir)).out
    for folder in log_dir.glob("*-0"):
        (folder / "loop").symlink_to("loop")
        (folder / "nothing.log").symlink_to("nowhere")
    assert kops("log", "forecast", "--format", "json", str(log_dir)).out == before


@pytest.mark.parametrize("arguments", [[], ["--assume", "crash"]])
def test_what_a_broker_appends_meanwhile_is_no_loss(
    kops: Kops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """A broker appends a batch and adds a segment after the loading, before the result is compared with the disk."""
    target = tmp_path / "kafka"
    shutil.copytree(_folder("broker-damage-4.3.0-none"), target, copy_function=corpus.copy_writable)
    partition = target / "disk1" / "orders-0"
    log = partition / "00000000000000000030.log"
    batch = log.read_bytes()
    batch = batch[: 12 + int.from_bytes(batch[8:12], "big")]

    def growing(files: Files, path: str) -> OnDisk:
        if path == str(partition):
            with log.open("ab") as file:
                file.write((36).to_bytes(8, "big") + batch[8:])
            (partition / "00000000000000000050.log").write_bytes((50).to_bytes(8, "big") + batch[8:])
        return offsets_on_disk(files, path)

    monkeypatch.setattr(module, "offsets_on_disk", growing)
    ran = kops("log", "forecast", "--format", "json", *arguments, str(target / "disk1"))
    document = json.loads(ran.out)
    orders = next(each for each in document["partitions"] if each["topic"] == "orders")
    assert (partition / "00000000000000000050.log").exists()
    assert (ran.code, orders["lost"], orders["segments_removed"], orders["segments_truncated"]) == (CLEAN, [], [], [])
    assert orders["log_end_offset"] == 36
