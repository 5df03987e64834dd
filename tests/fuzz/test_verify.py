"""`verify` and `index check` on random damage. They return for any contents."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kops.files import MemoryFiles
from kops.forensics.findings.codes import CODES
from kops.forensics.findings.finding import SEVERITIES, Finding
from kops.forensics.index.check import check_indexes
from kops.forensics.index.diff import diff_indexes
from kops.forensics.index.rebuild import plan_rebuild
from kops.forensics.verify.facts.facts import LEVELS
from kops.forensics.verify.run import verify
from tests.support import corpus
from tests.support.logs.damage import damage
from tests.support.logs.twins.loading import apply_operations

EACH = 5
"""Every fifth trial is used, and each case begins at another one."""


def in_memory(root: Path) -> MemoryFiles:
    """Return the base partition of a fuzz case as `/data/<its name>` in memory."""
    files = MemoryFiles()
    files.mkdir("/data")
    for path in sorted(root.rglob("*")):
        target = "/data/" + path.relative_to(root).as_posix()
        if path.is_dir():
            files.mkdir(target)
        else:
            files.write_all(target, path.read_bytes())
    return files


def sound(findings: list[Finding]) -> None:
    """Check that each finding has a registered code and plausible numbers."""
    for found in findings:
        assert found.code in CODES and found.severity in SEVERITIES
        assert found.file and found.detail
        assert found.position is None or found.position >= 0
        assert found.length is None or found.length > 0
        if found.base_offset is not None and found.last_offset is not None:
            assert found.base_offset <= found.last_offset, found


@pytest.mark.parametrize("case_id", corpus.cases("fuzz"))
def test_trials(case_id: str) -> None:
    """Undamaged trials of the corpus are clean. The others may have findings and raise no exception."""
    case = corpus.load(case_id)
    trials = case.lines("trials.jsonl")
    base = case.root / "base"
    (name,) = [path.name for path in base.iterdir() if path.is_dir()]
    chosen = [*trials[:3], *trials[3 + len(case_id) % EACH :: EACH]]
    for trial in chosen:
        files = in_memory(base)
        apply_operations(files, f"/data/{name}", trial["ops"])
        report = verify(["/data"], "full", files=files)
        sound(report.findings)
        if not trial["ops"]:
            assert not report.has_problems
        check_indexes(["/data"], files=files)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "case_id", ["v2-4.3.0-transactions", "v2-4.3.0-compacted-idempotent", "v1-0.10.2.2-codec-gzip", "v2-4.3.0-codec-lz4"]
)
def test_random_damage(case_id: str, seed: int, tmp_path: Path) -> None:
    """Random damage raises no exception on any level of `verify` or in the index tools."""
    case = corpus.load(case_id)
    source = next(path.parent for path in sorted(case.root.rglob("*.log")))
    directory = case.copy(tmp_path / source.name, source.relative_to(case.root).as_posix())
    damage(directory, random.Random(f"{case_id} {seed}"), 100)
    for level in LEVELS:
        sound(verify([directory], level).findings)
    sound(check_indexes([directory]).findings)
    list(diff_indexes([directory]))
    plan_rebuild([directory], everything=True)
