"""`kops scan offsets|txns`: the rows, texts and exit codes of `kops log`, from the directories of all brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kops.forensics.coordinators.internal_topics import Chosen
from kops.spark.jobs.replicas import competition
from tests.spark.scan_commands import Commands
from tests.support import corpus

CLUSTER = "cluster-4.3.0"


def nodes() -> list[Path]:
    """Return the log directories of three brokers."""
    return [corpus.load(CLUSTER).root / "nodes" / name for name in ("n1", "n2", "n3")]


def flip(log: Path, position: int) -> None:
    """Damage a byte of a file."""
    data = bytearray(log.read_bytes())
    data[position] ^= 0x40
    log.write_bytes(bytes(data))


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Provide a broker's directory with a damaged batch in every partition of the coordinators that has one."""
    folder = corpus.load(CLUSTER).copy(tmp_path / "n1", "nodes/n1")
    logs = [log for log in folder.glob("__*_*-*/*.log") if log.stat().st_size > 200]
    assert logs
    for log in logs:
        flip(log, 100)
    return folder


@pytest.mark.slow
def test_offsets_are_those_of_kops_log(commands: Commands) -> None:
    ran = commands.same("offsets", *nodes())
    assert {row["state"] for row in ran.lines} >= {"committed"}
    assert any(row["lag"] for row in ran.lines)


@pytest.mark.slow
def test_offsets_of_damaged_partitions(commands: Commands, damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(damaged.parent)  # damage is named with the path as it was given
    ran = commands.same("offsets", "n1", "--at", "1999999999999")
    assert ran.code == 4
    assert "kops: warning: n1/__consumer_offsets-" in ran.err


@pytest.mark.slow
def test_transactions_are_those_of_kops_log(commands: Commands) -> None:
    ran = commands.same("txns", "--empty", *nodes())
    assert {row["state"] for row in ran.lines} >= {"open"}
    assert "2 open, 0 hanging, " in ran.err


@pytest.mark.slow
def test_hanging_transactions(commands: Commands) -> None:
    ran = commands.same("txns", "--hanging", corpus.load("broker-dir-4.3.0").root / "crash")
    assert (ran.code, [row["state"] for row in ran.lines]) == (4, ["hanging"])


@pytest.mark.slow
def test_transactions_past_damage(commands: Commands, damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(damaged.parent)
    ran = commands.same("txns", "n1")
    assert ran.code == 4
    assert "kops: warning: n1/__" in ran.err


@pytest.mark.slow
def test_a_log_that_cannot_be_read_costs_only_its_transactions(commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = corpus.load(CLUSTER).copy(tmp_path / "n1", "nodes/n1")
    arguments = ("scan", "txns", "--empty", "--format", "jsonl", str(node))
    whole = commands(*arguments)
    gone, *_ = (node / str(row["name"]) for row in whole.lines)

    def choose_and_lose(*args: Any) -> Chosen:
        """A log disappears between the listing and its task."""
        chosen = competition(*args)
        for log in gone.glob("*.log"):
            log.unlink()
        return chosen

    monkeypatch.setattr("kops.spark.jobs.txns.competition", choose_and_lose)
    ran = commands(*arguments)
    assert ran.code == whole.code | 8
    assert f"kops: warning: {gone}/00000000000000000000.log: No such file or directory\n" in ran.err
    assert ran.lines == [row for row in whole.lines if row["name"] != gone.name]
