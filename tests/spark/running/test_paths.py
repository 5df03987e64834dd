"""Wrong paths are told before Spark starts, in the words and with the exit codes of `kops log`."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from kops.cli.commands.scan.running import OnSpark
from kops.errors import KopsError
from tests.spark.scan_commands import Commands
from tests.support import corpus

JOBS = ("verify", "diff", "grep", "keys", "offsets", "producers", "recover", "stats", "timeline", "txns")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Commands:
    """Provide commands that can't start Spark."""

    def start(*_: object, **__: object) -> NoReturn:
        raise KopsError("Spark would start")

    monkeypatch.setattr(OnSpark, "start", start)
    return Commands(capsysbinary)


def arguments(job: str, out: Path) -> tuple[object, ...]:
    """What the command needs beside paths."""
    return {"recover": ("--out", out), "grep": ("--key", ".")}.get(job, ())


@pytest.mark.parametrize("job", JOBS)
def test_wrong_paths(commands: Commands, tmp_path: Path, job: str) -> None:
    good = tmp_path / "good"
    corpus.load("cluster-4.3.0").copy(good, "nodes/n1")
    for name in ("empty", "foreign/below"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "foreign/notes.txt").write_text("nothing")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path, code, said in (
        (tmp_path / "missing", 8, "no such file or directory"),
        (tmp_path / "link", 8, "the symbolic link points to nothing"),
        (tmp_path / "mis*", 8, "no file or directory matches"),
        (tmp_path / "empty", 16, "not a log directory or a partition directory, and contains none"),
        (tmp_path / "foreign", 16, "not a log directory or a partition directory, and contains none"),
        (tmp_path / "foreign/notes.txt", 16, "not a name that Kafka gives its files; kops log dump shows what is in it"),
    ):
        ran = commands("scan", job, *arguments(job, tmp_path / "out"), good, path)
        assert (ran.code, ran.text, ran.err) == (code, "", f"kops: error: {path}: {said}\n")
    assert not (tmp_path / "out").exists()


def test_urls_that_nothing_reads(commands: Commands, tmp_path: Path) -> None:
    for url, said in (
        ("nosuch://bucket/a", "nosuch://bucket: kops can't read nosuch: URLs; it reads file, s3, gs, abfs, hdfs, and those of fsspec"),
        ("s3://", "s3://: no bucket or host after ://"),
        ("file://elsewhere/a", "file://elsewhere/a: a file of another machine; write file:///path"),
    ):
        ran = commands("scan", "stats", "--state", tmp_path / "state", url)
        assert (ran.code, ran.text, ran.err) == (16, "", f"kops: error: {said}\n")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("job", ["verify", "recover", "stats"])
def test_good_paths_start_spark(commands: Commands, tmp_path: Path, job: str) -> None:
    """Log directories, what is around them, partitions, and patterns."""
    corpus.load("cluster-4.3.0").copy(tmp_path / "some" / "n1", "nodes/n1")
    for path in (tmp_path / "some/n1", tmp_path, tmp_path / "some/n*", next((tmp_path / "some/n1").glob("orders-*"))):
        assert commands("scan", job, *arguments(job, tmp_path / "out"), path).err == "kops: error: Spark would start\n"
