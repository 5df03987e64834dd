"""Repair of a node's own files: what the disk alone can tell is repaired, and the node starts and serves as before the damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.files import OsFiles
from kops.forensics.forecast.run import ForecastOptions, forecast
from kops.forensics.repair.run import open_journal, plan_repair, repair, rollback
from kops.forensics.verify.run import verify
from kops.records import Damage, scan
from kops.storage.formats.meta_properties import read_meta_properties
from tests.support import corpus

UNKNOWABLE = {
    "bootstrap-corrupt-metadata-log-empty": "bootstrap-malformed",
    "directory-name-bad-characters": "directory-name-invalid",
    "dynamic-metadata-flip-middle": "batch-crc-mismatch",
    "dynamic-quorum-state-empty": "quorum-state-malformed",
    "dynamic-quorum-state-missing": "quorum-state-missing",
    "meta-cluster-id-differs-two-dirs": "meta-properties-differ",
    "meta-directory-id-duplicate-two-dirs": "meta-properties-differ",
    "meta-empty": "meta-properties-malformed",
    "meta-garbage": "meta-properties-malformed",
    "meta-missing": "meta-properties-missing",
    "meta-torn": "meta-properties-malformed",
    "metadata-flip-first": "batch-crc-mismatch",
    "metadata-flip-late": "batch-crc-mismatch",
    "metadata-flip-middle": "batch-crc-mismatch",
    "metadata-flip-topic-record": "batch-crc-mismatch",
    "partition-in-both-dirs": "partition-twice",
    "quorum-state-empty": "quorum-state-malformed",
    "quorum-state-epoch-behind": "quorum-state-wrong",
    "quorum-state-leader-wrong": "quorum-state-wrong",
    "quorum-state-malformed": "quorum-state-malformed",
    "quorum-state-missing": "quorum-state-missing",
    "quorum-state-version-wrong": "quorum-state-malformed",
    "quorum-state-voter-wrong": "quorum-state-wrong",
    "snapshots-all-missing": "metadata-start-missing",
}
"""What no other file of the node tells: a cluster's id, a vote, records of the metadata log; and a folder that Kafka sets aside itself."""
METADATA_IS_GONE = (
    "bootstrap-missing-metadata-log-empty",
    "dynamic-first-snapshot-and-log-missing",
    "dynamic-metadata-log-empty",
    "metadata-log-empty",
    "metadata-log-missing",
)
"""The node starts as an empty one: its topics are unknown to it."""
PREFIX = "broker-damage-4.3.0-"
CASES = corpus.cases("broker-damage")


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file() and ".kops-journal" not in path.relative_to(folder).parts[0]
    }


def batches(folder: Path) -> set[tuple[str, int, int]]:
    """Return the partition, base offset and checksum of every readable batch."""
    found: set[tuple[str, int, int]] = set()
    for path in folder.rglob("*.log"):
        with OsFiles(read_only=True).open(str(path)) as log:
            found |= {(path.parent.name, item.base_offset, item.crc) for item in scan(log) if not isinstance(item, Damage)}
    return found


@pytest.mark.parametrize("case_id", CASES)
def test_a_node_is_mended_as_far_as_its_disk_knows(case_id: str, tmp_path: Path) -> None:
    case = corpus.load(case_id)
    node = case.copy(tmp_path / "node", "before")
    before, intact = contents(node), batches(node)
    log_dirs = [node / name for name in case.json["logDirs"]]
    report = repair(log_dirs, mode="all")
    left = {found.code for found in report.left}
    expected = UNKNOWABLE.get(case_id.removeprefix(PREFIX))
    assert left == ({expected} if expected else set())
    assert {found.code for found in verify(log_dirs, "full").findings if found.is_problem} == left
    assert repair(log_dirs, mode="all").journals == []
    foreign = {step.path.rpartition("/")[2] for plan in report.plans for step in plan.steps if step.action == "remove-foreign-directory"}
    assert {batch for batch in intact if batch[0] not in foreign} <= batches(node)
    for log_dir in log_dirs:
        if (log_dir / "meta.properties").exists() and not left:
            clean = read_meta_properties((case.root / "clean" / log_dir.name / "meta.properties").read_bytes())
            mended = read_meta_properties((log_dir / "meta.properties").read_bytes())
            if "meta-" in case_id:
                assert mended == clean or not report.journals, "what is mended is what was there"
    for journal in report.journals:
        rollback(OsFiles(), open_journal(OsFiles(), journal.path))
    assert contents(node) == before


@pytest.mark.parametrize("case_id", [each for each in CASES if each.removeprefix(PREFIX) not in (*UNKNOWABLE, *METADATA_IS_GONE)])
@pytest.mark.parametrize("clean", [True, False])
def test_a_mended_node_loses_nothing_at_its_start(case_id: str, clean: bool, tmp_path: Path) -> None:
    case = corpus.load(case_id)
    node = case.copy(tmp_path / "node", "before")
    log_dirs = [str(node / name) for name in case.json["logDirs"]]
    if not any(plan.findings for plan in plan_repair(log_dirs)):
        return  # nothing to repair: an identity or an assignment differs, and only the cluster knows the right one
    repair(log_dirs, mode="all")
    answer = forecast(OsFiles(read_only=True), log_dirs, ForecastOptions(now_ms=1_800_000_000_000, clean_shutdown=clean))
    lost = [(each.dir, each.lost_though_intact) for each in answer.partitions if each.lost_though_intact]
    assert lost == []
