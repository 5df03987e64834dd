"""`kops log diff` on the command line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Ran
from tests.support import corpus

Kops = Callable[..., Ran]


def diverged() -> list[str]:
    root = corpus.load("cluster-4.3.0").root / "diverged"
    return [str(root / name) for name in ("broker-2", "broker-3-live")]


def test_table(kops: Kops) -> None:
    ran = kops("log", "diff", *diverged())
    assert ran.code == 4
    first, empty, head, two, three, *_ = ran.text.splitlines()
    assert "replica-diverged [20-34]: from offset 20 on" in first
    assert not empty
    assert head.split()[:2] == ["PARTITION", "DIRECTORY"]
    assert two.split()[-4:] == ["-", "20-31", "12", "best"]
    assert three.split()[-4:] == ["-", "20-34", "15", "-"]
    assert "clicks-unclean-0: the first difference is at offset 20: replica-diverged" in ran.err


def test_documents(kops: Kops) -> None:
    ran = kops("log", "diff", "--format", "json", *diverged())
    assert ran.code == 4
    document = json.loads(ran.text)
    assert document["schema"] == "kops.diff/v1"
    (partition,) = document["partitions"]
    assert partition["first_divergence"]["offset"] == 20
    assert partition["best"].endswith("broker-2/clicks-unclean-0")
    assert [each["offsets_lost"] for each in partition["replicas"]] == [12, 15]
    (found,) = [json.loads(line) for line in kops("log", "diff", "--format", "jsonl", *diverged()).text.splitlines()]
    assert found == {"schema": "kops.diff/v1", **document["findings"][0]}
    rows = list(csv.DictReader(io.StringIO(kops("log", "diff", "--replicas", "--format", "csv", *diverged()).text)))
    assert [(row["broker"], row["loses"], row["best"]) for row in rows] == [("2", "[[20, 31]]", "true"), ("3", "[[20, 34]]", "false")]


def test_no_difference(kops: Kops, tmp_path: Path) -> None:
    case = corpus.load("damage-4.3.0-none")
    dirs = [str(case.copy(tmp_path / name, "clean")) for name in ("one", "two")]
    ran = kops("log", "diff", *dirs)
    assert (ran.code, ran.text) == (0, "")
    assert "1 partition compared: no difference" in ran.err


def test_what_cannot_be_compared(kops: Kops, tmp_path: Path) -> None:
    case = corpus.load("damage-4.3.0-none")
    one = str(case.copy(tmp_path / "one", "clean"))
    ran = kops("log", "diff", one)
    assert ran.code == 16
    assert "no partition has two replicas" in ran.err
