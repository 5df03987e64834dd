"""`why_deleted` on files that real brokers deleted. The script of each case shows the reason."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kops.forensics.leftovers.why import Verdict, why_deleted
from kops.forensics.repair.topics import TopicIds
from kops.metadata import ClusterImage
from tests.support import corpus

NOW = 1_800_000_000_000
RETENTION = "v2-4.3.0-retention"
COMPACTED = "v2-4.3.0-compacted"


def verdicts(path: Path) -> dict[str, Verdict]:
    return {Path(each.path).name: each for each in why_deleted([path], now_ms=NOW)}


def causes(verdict: Verdict) -> list[tuple[str, str]]:
    return [(each.cause, each.confidence) for each in verdict.causes]


def test_retention(tmp_path: Path) -> None:
    found = verdicts(corpus.load(RETENTION).root / "data")
    verdict = found["00000000000000000000.log.deleted"]
    assert (verdict.first_offset, verdict.last_offset) == (0, 54)
    assert causes(verdict) == [("retention-time", "possible")]
    assert any("DeleteRecords" in each for each in verdict.excluded)


def test_time_is_excluded_for_a_young_segment() -> None:
    (verdict,) = why_deleted([corpus.load(RETENTION).root / "data"], now_ms=1_700_000_600_000)
    assert "retention-time" not in dict(causes(verdict))
    assert any("time does not delete it" in each for each in verdict.excluded)


def test_compaction_is_certain_where_the_cleaner_is_beyond() -> None:
    found = verdicts(corpus.load(COMPACTED).root / "data")
    deleted = [each for name, each in found.items() if name.endswith(".deleted")]
    assert len(deleted) >= 3
    assert {causes(each)[0] for each in deleted} == {("compaction", "certain")}


@pytest.mark.parametrize("start", [200, 55])
def test_delete_records_moves_the_start(start: int, tmp_path: Path) -> None:
    log_dir = corpus.load(RETENTION).copy(tmp_path / "log", "data")
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\npayments-retention 0 {start}\n")
    (verdict,) = why_deleted([log_dir], now_ms=NOW)
    found = dict(causes(verdict))
    assert found["delete-records"] == ("likely" if start == 200 else "possible")


def test_what_is_behind_the_end_was_cut_off(tmp_path: Path) -> None:
    log_dir = corpus.load(RETENTION).copy(tmp_path / "log", "data")
    partition = log_dir / "payments-retention-0"
    (partition / "00000000000000000165.log").rename(partition / "00000000000000000165.log.deleted")
    found = verdicts(log_dir)["00000000000000000165.log.deleted"]
    assert causes(found) == [("recovery", "likely"), ("truncation", "possible")]


def test_a_beginning_that_left_no_trace(tmp_path: Path) -> None:
    log_dir = corpus.load(RETENTION).copy(tmp_path / "log", "data")
    for path in (log_dir / "payments-retention-0").glob("*.deleted"):
        path.unlink()
    (verdict,) = why_deleted([log_dir / "payments-retention-0"], now_ms=NOW)
    assert (verdict.what, verdict.first_offset, verdict.last_offset) == ("beginning of the log", 0, 54)
    assert ("retention-time", "possible") in causes(verdict)


def test_a_deleted_topic_is_named_with_the_record_that_removed_it() -> None:
    """The broker crashed after the topic was deleted. The metadata log is available."""
    found = verdicts(corpus.load("broker-dir-4.3.0").root / "crash" / "disk1")
    (verdict,) = [each for name, each in found.items() if name.endswith("-delete")]
    assert causes(verdict) == [("topic-deletion", "certain")]
    assert "removes topic id" in verdict.causes[0].evidence[0] or "has no topic with id" in verdict.causes[0].evidence[0]


def test_a_move_between_disks_is_no_deletion_of_the_topic() -> None:
    found = verdicts(corpus.load("broker-dir-4.3.0").root / "recovered" / "disk1")
    (moved,) = [each for name, each in found.items() if name.startswith("orders-moving") and name.endswith("-delete")]
    assert causes(moved) == [("moved-between-disks", "likely")]


def test_without_metadata_it_says_less(tmp_path: Path) -> None:
    source = next(path for path in (corpus.load("broker-dir-4.3.0").root / "crash" / "disk1").iterdir() if path.name.endswith("-delete"))
    shutil.copytree(source, tmp_path / source.name)
    (verdict,) = why_deleted([tmp_path / source.name], now_ms=NOW)
    assert causes(verdict) == [("topic-deletion", "likely"), ("reassignment", "possible")]


def test_leftovers_of_a_compaction() -> None:
    for kind in ("cleaned", "swap"):
        case = corpus.load(f"damage-4.3.0-leftover-{kind}")
        found = [each for name, each in verdicts(case.root / "before").items() if name.endswith(f".{kind}")]
        assert found and {causes(each)[0] for each in found} == {("compaction", "likely")}


@pytest.mark.parametrize(
    ("settings", "expected", "excluded"),
    [
        ({}, [("retention-time", "likely")], "retention.bytes is -1 (the default)"),
        ({"retention.ms": "-1"}, [], "retention.ms is -1 (the topic's setting)"),
        ({"retention.ms": "-1", "retention.bytes": "1000"}, [("retention-size", "likely")], "retention.ms is -1"),
        ({"retention.bytes": "999999999"}, [("retention-time", "possible")], "size would have kept it"),
        ({"cleanup.policy": "compact"}, [("delete-records", "likely")], "cleanup.policy is compact"),
    ],
)
def test_settings_of_the_topic_decide(
    settings: dict[str, str], expected: list[tuple[str, str]], excluded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic belongs to a whole cluster whose metadata is available. Its first segment is renamed as by retention."""
    log_dir = corpus.load("broker-dir-4.3.0").copy(tmp_path / "log", "crash/disk1")
    first = min((log_dir / "orders-moving-0").glob("*.log"))
    first.rename(first.with_name(first.name + ".deleted"))
    read = TopicIds.image

    def with_settings(topics: TopicIds) -> ClusterImage:
        image = read(topics)
        image.configs[2, "orders-moving"] = settings
        return image

    monkeypatch.setattr(TopicIds, "image", with_settings)
    verdict = verdicts(log_dir)[first.name + ".deleted"]
    assert causes(verdict) == expected
    assert any(excluded in each for each in verdict.excluded), verdict.excluded
