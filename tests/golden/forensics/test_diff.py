"""`diff` on the corpus: each damage case as one of three replicas, undamaged logs, and the cluster of the unclean election."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kops.forensics.replicas.report import DiffReport
from kops.forensics.replicas.run import diff
from tests.support import corpus

LOG_IS_INTACT = (
    "none",
    "extra-empty-segment",
    "index-",
    "leader-epoch-beyond",
    "leader-epoch-empty",
    "leader-epoch-malformed",
    "leader-epoch-missing",
    "leftover-",
    "missing-all-indexes",
    "missing-index",
    "missing-timeindex",
    "partition-metadata-",
    "segment-overlap",  # every batch is there once, in a segment of another name
    "snapshot",
    "stray-files",
    "timeindex-",
    "txnindex-",
)
"""Cases whose batches are all in their places: the damage is in other files, which `verify` checks."""
CODES = {
    "sequence-gap-crc-ok": "replica-contents-differ",
    "leader-epoch-minus": "replica-epoch-differs",
    "leader-epoch-up": "replica-epoch-differs",
    "hole-in-active": "replica-gap",
    "missing-": "replica-gap",
    "zero-length-": "replica-gap",
}
"""The code by the beginning of the case's name; `replica-damaged` for all others."""


def damage_of(case: corpus.Case) -> str:
    return case.id.split("-", 2)[2]


def three(case: corpus.Case, tmp_path: Path) -> DiffReport:
    for name, folder in (("one", "clean"), ("two", "before"), ("three", "clean")):
        case.copy(tmp_path / name, folder)
    return diff([tmp_path / name for name in ("one", "two", "three")])


@pytest.mark.parametrize("case_id", corpus.cases("damage"))
def test_damage_in_one_of_three(case_id: str, tmp_path: Path) -> None:
    case = corpus.load(case_id)
    damage = damage_of(case)
    report = three(case, tmp_path)
    codes = {found.code for found in report.findings}
    if damage.startswith(LOG_IS_INTACT):
        assert codes == set()
        return
    assert codes == {next((code for start, code in CODES.items() if damage.startswith(start)), "replica-damaged")}
    assert all(found.file.startswith(str(tmp_path / "two")) for found in report.findings)
    (partition,) = [each for each in report.partitions if each.findings]
    assert partition.lost == []
    first, second, third = partition.replicas
    assert first.best != third.best
    assert not second.best
    if codes != {"replica-contents-differ"}:
        assert [first.loses, third.loses] == [[], []]
    # The damaged replica lacks what is not intact on its disk.
    intact = {offset for low, high in case.json["offsetsIntactOnDisk"] for offset in range(low, high + 1)}
    truth = {row["offset"] for row in case.lines("truth/records/clean.read_uncommitted.jsonl")}
    lacks = {offset for low, high in second.missing for offset in range(low, high + 1)}
    assert truth - intact <= lacks or codes & {"replica-contents-differ", "replica-epoch-differs"}


UNDAMAGED = [case_id for case_id in corpus.cases("format") if case_id.startswith(("v0-", "v1-", "v2-4.3.0-", "v2-2.8.2-mixed"))]


@pytest.mark.parametrize("case_id", UNDAMAGED)
def test_undamaged_logs_agree_with_themselves(case_id: str, tmp_path: Path) -> None:
    """A copy without its oldest segment, as retention leaves it, does not differ either."""
    case = corpus.load(case_id)
    directories = sorted({path.rpartition("/")[0] for path in case.files("data") if path.endswith(".log")})
    for number, directory in enumerate(directories):
        copy = tmp_path / str(number) / directory.rpartition("/")[2]
        shutil.copytree(case.root / directory, copy)
        logs = sorted(copy.glob("*.log"))
        if len(logs) > 1:
            logs[0].unlink()
        (copy / "leader-epoch-checkpoint").unlink(missing_ok=True)
        report = diff([case.root / directory, copy])
        assert report.findings == []
        assert [each.loses for each in report.partitions[0].replicas] == [[], []]


def test_the_unclean_election(tmp_path: Path) -> None:
    """Broker 3 was elected at offset 20 while broker 2, which was down, had 35 committed records: truth/records/*-before-unclean*."""
    case = corpus.load("cluster-4.3.0")
    report = diff([case.root / "diverged" / name for name in ("broker-2", "broker-3-live")])
    (found,) = report.findings
    assert (found.code, found.base_offset, found.last_offset) == ("replica-diverged", 20, 34)
    assert "/broker-2/" in found.file
    (partition,) = report.partitions
    assert partition.first_divergence is not None
    assert partition.first_divergence.offset == 20
    two, three = partition.replicas
    assert (two.loses, two.committed) == ([(20, 31)], 12)
    assert (three.loses, three.committed) == ([(20, 34)], 15)
    assert two.best
    # Kafka's own log of the truncation, when broker 2 came back.
    assert any("Truncating clicks-unclean-0 to offset 20 below high watermark 35" in line for line in case.json["truncationLog"])


@pytest.mark.parametrize("case_id", corpus.cases("cluster"))
def test_replicas_of_a_cluster_agree_in_the_end(case_id: str) -> None:
    case = corpus.load(case_id)
    report = diff(sorted((case.root / "nodes").iterdir()))
    assert not report.has_problems
    assert {found.code for found in report.findings} <= {"replica-behind"}
    data = [each for each in report.partitions if each.topic != "__cluster_metadata"]
    assert len(data) >= 5
    assert [replica.loses for each in data for replica in each.replicas if replica.loses] == []
    assert all(each.first_divergence is None for each in report.partitions)
