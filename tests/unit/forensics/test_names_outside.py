"""Names in damaged or foreign data never lead outside of the output directory, and only regular files are read.

`carve`, `heal` and `evidence` have more such tests beside their others.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.api import export_lines, import_lines, rollback
from kops.errors import DecodeError, KopsError
from kops.forensics.heal.run import heal
from kops.forensics.lines.exporting import PARTITION, SEGMENT
from kops.forensics.plans.journal import JOURNAL_FILE
from kops.forensics.recover.run import recover
from kops.forensics.repair.run import repair
from tests.unit.forensics.replicas.test_diff import RIGHT, flipped, replica


def everything(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


def everything_below(folder: Path, root: Path) -> set[str]:
    return {f"{folder.relative_to(root)}/{name}" for name in everything(folder)}


def odd_names(tmp_path: Path) -> Path:
    """Make a log directory with dots, links, a pipe and a device among its partitions and logs."""
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
    return made


@pytest.fixture
def log_dir(tmp_path: Path) -> Iterator[Path]:
    """Provide such a log directory. Nothing beside it may change."""
    made = odd_names(tmp_path)
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


def test_recover_over_a_link(log_dir: Path, tmp_path: Path) -> None:
    """`--force` and `--resume` replace a link in the output, and remove nothing behind it."""
    out, kept = tmp_path / "out", tmp_path / "out-kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    out.mkdir()
    (out / "orders-0").symlink_to(kept)
    recover([log_dir], out, force=True)
    assert {path.name for path in kept.iterdir()} == {"file"}
    assert not (out / "orders-0").is_symlink()


@pytest.mark.parametrize("is_source", [False, True])
def test_heal(is_source: bool, tmp_path: Path) -> None:
    """Only the healed directory and its journal change, and nothing is written through a link."""
    odd, other = odd_names(tmp_path), replica(tmp_path, 2, (0, RIGHT))
    target, source = (other, odd) if is_source else (odd, other)
    beside, pipe = everything(tmp_path) - everything_below(target, tmp_path), odd / "odd-0" / f"{7:020d}.log"
    heal([target], [source], mode="all")
    assert {name for name in everything(tmp_path) - beside if not name.startswith((target.name, f"{target.name}.kops-journal"))} == set()
    assert pipe.is_fifo() and not (tmp_path.parent / "nowhere").exists() and not (tmp_path / "nowhere").exists()
    assert b"".join(RIGHT) == (target / "orders-0" / f"{0:020d}.log").read_bytes()


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


def test_import_over_a_link(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x-0").symlink_to(kept)
    lines: list[dict[str, Any]] = [{"schema": PARTITION, "name": "x-0", "topicId": None}, {"schema": SEGMENT, "baseOffset": 0}]
    with pytest.raises(KopsError, match="x-0"):
        import_lines(lines, out=tmp_path / "out")
    assert list(kept.iterdir()) == []


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


def interrupted_heal(tmp_path: Path) -> tuple[Path, Path, dict[str, Any]]:
    """Return a log directory whose healing has not begun, its journal, and the plan in it."""
    target = replica(tmp_path, 1, (0, [*RIGHT[:3], flipped(RIGHT[3]), *RIGHT[4:]]))
    done = heal([target], [replica(tmp_path, 2, (0, RIGHT))], mode="all")
    (journal,) = done.repair.journals
    rollback(Path(journal.path))
    file = Path(journal.path) / JOURNAL_FILE
    document = json.loads(file.read_bytes().splitlines()[0])
    file.write_text(json.dumps(document) + "\n")
    return target, file, document


def sources(document: dict[str, Any], target: Path) -> list[list[Any]]:
    parts = [part for step in document["steps"] for part in step.get("parts", ()) if part[0] != "own"]
    return [part for part in parts if not part[0].startswith(str(target))]


def test_an_interrupted_heal_goes_on(tmp_path: Path) -> None:
    target, _, document = interrupted_heal(tmp_path)
    assert sources(document, target)
    repair([target], mode="all")
    assert (target / "orders-0" / f"{0:020d}.log").read_bytes() == b"".join(RIGHT)


@pytest.mark.parametrize("how", ["any file", "a link", "no checksum", "another partition", "through the log directory"])
def test_a_forged_journal_reads_no_other_file(how: str, tmp_path: Path) -> None:
    target, file, document = interrupted_heal(tmp_path)
    secret = tmp_path / "secret"
    secret.write_bytes(b"x" * 10_000)
    for part in sources(document, target):
        part[3] = zlib.crc32(b"x" * part[2])
        if how == "a link":
            name = tmp_path / "other" / "orders-0" / f"{0:020d}.log"
            name.parent.mkdir(parents=True, exist_ok=True)
            if not name.is_symlink():
                name.symlink_to(secret)
            part[0] = str(name)
        elif how == "no checksum":
            del part[3]
        elif how == "another partition":
            part[0] = part[0].replace("orders-0", "orders-1")
        else:
            part[0] = str(secret) if how == "any file" else f"{target}/../secret"
    file.write_text(json.dumps(document) + "\n")
    before = (target / "orders-0" / f"{0:020d}.log").read_bytes()
    with pytest.raises(DecodeError, match="nor a log of orders-0"):
        repair([target], mode="all")
    assert (target / "orders-0" / f"{0:020d}.log").read_bytes() == before


@pytest.mark.parametrize("force", [False, True])
def test_rollback_through_a_link(force: bool, tmp_path: Path) -> None:
    """A link that was not there during the repair may lead to other files of the same names."""
    made = replica(tmp_path, 1, (0, [*RIGHT[:3], flipped(RIGHT[3]), *RIGHT[4:]]))
    (journal,) = repair([made], mode="all").journals
    other = tmp_path / "other"
    shutil.copytree(made / "orders-0", other)
    kept = {path.name: path.read_bytes() for path in other.iterdir()}
    (made / "orders-0").rename(tmp_path / "moved")
    (made / "orders-0").symlink_to(other)
    with pytest.raises(KopsError, match="Remove the link"):
        rollback(Path(journal.path), force=force)
    assert {path.name: path.read_bytes() for path in other.iterdir()} == kept


def test_rollback_of_a_partition_that_is_a_link(tmp_path: Path) -> None:
    """As a broker, `repair` follows the links of a log directory, and so does its rollback."""
    made = replica(tmp_path, 1, (0, [*RIGHT[:3], flipped(RIGHT[3]), *RIGHT[4:]]))
    (made / "orders-0").rename(tmp_path / "other")
    (made / "orders-0").symlink_to(tmp_path / "other")
    kept = {path.name: path.read_bytes() for path in (tmp_path / "other").iterdir()}
    (journal,) = repair([made], mode="all").journals
    assert {path.name: path.read_bytes() for path in (tmp_path / "other").iterdir()} != kept
    rollback(Path(journal.path))
    assert {path.name: path.read_bytes() for path in (tmp_path / "other").iterdir()} == kept
