"""Names in damaged or foreign data never lead outside of the output directory, and only regular files are read.

`carve`, `heal` and `evidence` have such tests beside their others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.api import export_lines, import_lines, rollback
from kops.errors import DecodeError, KopsError
from kops.forensics.lines.exporting import PARTITION, SEGMENT
from kops.forensics.plans.journal import JOURNAL_FILE
from kops.forensics.recover.run import recover
from kops.forensics.repair.run import repair
from tests.unit.forensics.replicas.test_diff import RIGHT, flipped, replica


def everything(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


@pytest.fixture
def log_dir(tmp_path: Path) -> Iterator[Path]:
    """Provide a log directory with dots, links, a pipe and a device among its partitions and logs. Nothing beside it may change."""
    made = replica(tmp_path, 1, (0, [*RIGHT[:3], flipped(RIGHT[3]), *RIGHT[4:]]))
    for name in ("..-0", "...-1", ".. -2", "%2e%2e%2fx-3"):
        (made / name).mkdir()
        (made / name / f"{0:020d}.log").write_bytes(RIGHT[0])
    odd = made / "odd-0"
    odd.mkdir()
    (odd / f"{0:020d}.log").symlink_to("/dev/zero")
    (odd / f"{5:020d}.log").symlink_to("../../../nowhere")
    (odd / f"{9:020d}.log").mkdir()
    os.mkfifo(odd / f"{7:020d}.log")
    before = everything(tmp_path)
    yield made
    assert {name for name in everything(tmp_path) - before if not name.startswith("out")} == set()


def test_recover(log_dir: Path, tmp_path: Path) -> None:
    for shape in ("segment", "jsonl"):
        out = tmp_path / f"out-{shape}"
        report = recover([log_dir], out, shape=shape)
        for entry in report.partitions:
            assert Path(os.path.realpath(entry.output)).parent == out
        assert sum(entry.records for entry in report.partitions if entry.name == "orders-0") == 18


def test_export(log_dir: Path) -> None:
    """A pipe ends the export instead of blocking it. Names are only in the lines."""
    with pytest.raises(OSError, match="Is a pipe"):
        list(export_lines(log_dir / "odd-0"))
    names = [line["name"] for line in export_lines(log_dir / "orders-0", log_dir / "..-0") if "topicId" in line]
    assert "orders-0" in names


@pytest.mark.parametrize("name", ["../x-0", "/abs-0", "..", ".", "a/b-0", "..-x", "", "x-0/../../y-0", "x\x00-0"])
def test_import(name: str, tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [{"schema": PARTITION, "name": name, "topicId": None}, {"schema": SEGMENT, "baseOffset": 0}]
    before = everything(tmp_path)
    with pytest.raises(KopsError):
        import_lines(lines, out=tmp_path / "out")
    assert everything(tmp_path) - before <= {"out"}


@pytest.mark.parametrize(
    "field,value", [("path", "/etc/victim"), ("path", "LOG_DIR/../victim"), ("path", "LOG_DIR"), ("log_dir", "/"), ("log_dir", "/etc")]
)
def test_rollback(field: str, value: str, tmp_path: Path) -> None:
    made = replica(tmp_path, 1, (0, [*RIGHT[:3], flipped(RIGHT[3]), *RIGHT[4:]]))
    done = repair([made], mode="all")
    (journal,) = done.journals
    file = Path(journal.path) / JOURNAL_FILE
    first, *rest = file.read_bytes().splitlines(keepends=True)
    document = json.loads(first)
    value = value.replace("LOG_DIR", str(made))
    (document if field == "log_dir" else document["steps"][0])[field] = value
    file.write_bytes(json.dumps(document).encode() + b"\n" + b"".join(rest))
    before = everything(tmp_path)
    with pytest.raises(DecodeError, match="journal"):
        rollback(Path(journal.path), force=True)
    assert everything(tmp_path) == before
