"""`kops log undelete`: plan, execute, and roll back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from kops.cli.running.exit_codes import CLEAN, FIXED, PROBLEMS, USAGE
from tests.cli.conftest import Ran
from tests.support import corpus

Kops = Callable[..., Ran]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_there_and_back(kops: Kops, tmp_path: Path) -> None:
    log_dir = corpus.load("v2-4.3.0-retention").copy(tmp_path / "log", "data")
    before = contents(log_dir)
    planned = kops("log", "undelete", "-n", str(log_dir))
    assert planned.code == CLEAN
    assert "undelete-segment" in planned.text and "nothing was written; -y does it" in planned.err
    assert contents(log_dir) == before
    done = kops("log", "undelete", "-y", "--format", "json", str(log_dir))
    assert done.code == FIXED
    document = json.loads(done.out)
    assert document["schema"] == "kops.undelete/v1"
    (journal,) = document["journals"]
    assert any(name.endswith("00000000000000000000.log") for name in contents(log_dir))
    assert kops("log", "undelete", str(log_dir)).err == "there is nothing to restore\n"
    assert kops("log", "repair", "--rollback", journal).code == FIXED
    assert contents(log_dir) == before


def test_what_is_refused_is_told(kops: Kops, tmp_path: Path) -> None:
    log_dir = corpus.load("v2-4.3.0-compacted").copy(tmp_path / "log", "data")
    ran = kops("log", "undelete", "-y", str(log_dir))
    assert ran.code == PROBLEMS
    assert "00000000000000000000.log.deleted: a segment of that name is in the log" in ran.err
    assert kops("log", "undelete", "-n", "-y", str(log_dir)).code == USAGE


def test_why(kops: Kops) -> None:
    data = corpus.load("v2-4.3.0-compacted").root / "data"
    ran = kops("log", "why-deleted", "--format", "csv", str(data))
    assert ran.code == CLEAN
    assert ran.text.splitlines()[0] == "path,what,first_offset,last_offset,cause,confidence,evidence"
    assert all(",compaction,certain," in line for line in ran.text.splitlines()[1:] if ".deleted" in line)
    document = json.loads(kops("log", "why-deleted", "--format", "json", str(data)).out)
    assert document["schema"] == "kops.why-deleted/v1"
    assert {each["causes"][0]["cause"] for each in document["deleted"]} == {"compaction"}
    assert "PATH" in kops("log", "why-deleted", str(data)).text
