"""Offset indexes that lost entries, found by comparing the spacing of their neighbours (`kops.forensics.verify.facts.index.check_spacing`),
and the setting for writing a rebuilt index (`kops.forensics.plans.index_interval`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.files import OsFiles
from kops.forensics.plans.journal import rollback
from kops.forensics.repair.run import repair
from kops.forensics.verify.facts.index import IndexSpacing, check_spacing
from kops.forensics.verify.run import verify
from tests.support import corpus


def spacing(path: str, *, least: int, last: int, behind: list[int]) -> IndexSpacing:
    return IndexSpacing(path, last // least if least else 0, least, last, behind, 10, 99)


@pytest.mark.parametrize("step", [4096, 5000])
def test_an_emptied_index_among_batches_of_one_size(step: int) -> None:
    """Kafka's rule is more than `index.interval.bytes`, which is less than any observed distance. So a distance as small as the smallest
    one is enough.
    """
    whole = spacing("whole", least=4096, last=40_960, behind=[])
    emptied = spacing("emptied", least=0, last=0, behind=[step, 2 * step, 3 * step])
    assert [found.file for found in check_spacing([whole, emptied])] == ["emptied"]
    near = spacing("near", least=0, last=0, behind=[1000, 2000, 3000])
    assert list(check_spacing([whole, near])) == []


def test_indexes_that_are_all_empty() -> None:
    """The default setting is assumed, and many time index entries that far apart are required, because a restart alone writes one."""
    closed = [spacing(name, least=0, last=0, behind=[5000 * n for n in range(1, 40)]) for name in ("one", "two")]
    assert [found.file for found in check_spacing(closed)] == ["one", "two"]
    assert list(check_spacing([spacing("few", least=0, last=0, behind=[5000 * n for n in range(1, 20)])])) == []
    assert list(check_spacing([spacing("near", least=0, last=0, behind=[400 * n for n in range(1, 400)])])) == []


@pytest.mark.parametrize("case_id", ["v2-4.3.0-codec-none", "v2-4.3.0-codec-gzip"])
@pytest.mark.parametrize("content", [b"", bytes(40)])
def test_an_index_that_lost_its_entries_does_not_tell_the_setting(case_id: str, content: bytes, tmp_path: Path) -> None:
    case = corpus.load(case_id)
    log_dir = case.copy(tmp_path / "log", "data")
    (index, *others) = sorted(path for path in log_dir.glob("*/*.index") if path.stat().st_size)
    assert others
    index.write_bytes(content)
    assert verify([log_dir], "full").has_problems
    repair([log_dir], mode="all")
    assert not {found.file for found in verify([log_dir], "full").findings if found.is_problem and found.file.endswith(".index")}
    # It is as the broker wrote it.
    assert index.read_bytes() == (case.root / "data" / index.relative_to(log_dir)).read_bytes()


def test_an_index_behind_a_relative_symlink_is_mended_and_given_back(tmp_path: Path) -> None:
    case = corpus.load("v2-4.3.0-codec-none")
    log_dir = case.copy(tmp_path / "log", "data")
    index = next(path for path in sorted(log_dir.glob("*/*.index")) if path.stat().st_size)
    right = index.read_bytes()
    elsewhere = tmp_path / "elsewhere.index"
    elsewhere.write_bytes(b"\xff" + right[1:])
    index.unlink()
    index.symlink_to("../../elsewhere.index")
    report = repair([log_dir], mode="all")
    assert index.read_bytes() == right
    assert elsewhere.read_bytes() == b"\xff" + right[1:], "what is elsewhere stays as it was"
    (journal,) = report.journals
    rollback(OsFiles(), journal)
    assert index.read_bytes() == elsewhere.read_bytes()
