"""`verify` reports no problem, at any level, in what real Apache Kafka wrote and nobody damaged: after a clean stop, killed, compacted, on
followers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.forensics.verify.facts.facts import LEVELS
from kops.forensics.verify.run import verify
from tests.support import corpus
from tests.support.logs.verifying import problems

# Kafka's record classes made the files of exotic-batches, not a broker: there are no indexes and no epochs, and the tests chose the
# offsets.
HEALTHY = sorted(
    [
        *corpus.cases("format"),
        *corpus.cases("cluster"),
        *corpus.cases("broker-dir"),
        *(case for case in corpus.cases("damage") if case.endswith("-none")),
        *(case for case in corpus.cases("broker-damage") if "-none" in case),
    ]
)


def roots(case_id: str) -> list[Path]:
    """Return the folders of a case that contain a broker's files."""
    case = corpus.load(case_id)
    if "before" in case.json:
        return [case.root / "before"]
    return [path for path in sorted(case.root.iterdir()) if path.is_dir() and path.name != "truth"]


@pytest.mark.parametrize("case_id", HEALTHY)
def test_clean(case_id: str) -> None:
    """There is no error and no warning at any level."""
    for root in roots(case_id):
        for level in LEVELS:
            report = verify([root], level)
            assert report.segments > 0 or not list(root.rglob("*.log"))
            assert problems(report.findings) == [], level


@pytest.mark.parametrize("case_id", HEALTHY)
def test_partitions_by_themselves_are_clean(case_id: str) -> None:
    """A partition directory that is named alone is clean, whatever is around it."""
    for root in roots(case_id):
        for directory in sorted({path.parent for path in root.rglob("*.log")}):
            assert problems(verify([directory], "full").findings) == [], directory


@pytest.mark.parametrize("case_id", [case for case in HEALTHY if case.startswith("damage")])
def test_copied_partition_is_clean(case_id: str, tmp_path: Path) -> None:
    """A partition directory that was copied elsewhere is clean without a log directory around it."""
    case = corpus.load(case_id)
    copied = case.copy(tmp_path / "rescued", case.json["damagedDir"])
    assert problems(verify([copied], "full").findings) == []


def test_what_a_kill_leaves_is_told_as_info() -> None:
    """After kill -9 there are preallocated indexes, a directory being deleted and one being moved. They are no problem, but an info gives
    the reason.
    """
    case = corpus.load("broker-dir-4.3.0")
    report = verify([case.root / "crash"], "full")
    told = {found.code: found.detail for found in report.findings}
    assert set(told) == {"unclean-shutdown", "index-preallocated", "directory-deleted", "directory-future"}
    assert "no clean-shutdown marker" in told["index-preallocated"]
    assert not report.has_problems


def test_records_are_counted() -> None:
    """The numbers in the report are those of the log."""
    case = corpus.load("damage-4.3.0-none")
    report = verify([case.root / case.json["damagedDir"]], "deep")
    assert (report.segments, report.batches, report.records) == (5, 33, 99)
    assert report.bytes == sum(path.stat().st_size for path in (case.root / case.json["damagedDir"]).glob("*.log"))
